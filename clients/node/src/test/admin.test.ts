import assert from "node:assert/strict";
import { test } from "node:test";
import { Admin, OncelogError } from "../index.js";

test("an action that is none is refused before a node is asked", async () => {
  const admin = new Admin({ bootstrapServers: "localhost:1" });
  const refused = (e: unknown) =>
    e instanceof OncelogError && e.kind === "INVALID_REQUEST" && e.details.field === "action";
  await assert.rejects(admin.changeNode(1, { action: "fly" as "drain" }), refused);
  await assert.rejects(admin.balance("1" as "plan"), refused);
  admin.close();
});
