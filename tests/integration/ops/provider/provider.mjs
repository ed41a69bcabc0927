// A provider with the pages of oidc-provider's development mode: any name logs in with any password.
//
// It prints its issuer, and reads one line: {"clients": [...], "lives": {client: seconds}}. Then
// it serves until its input ends. /granted counts its answers by kind of grant and client.
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import Provider from "oidc-provider";

const granted = {};
let serve = (request, response) => response.writeHead(503).end();
const server = createServer((request, response) => {
  if (request.url !== "/granted") return serve(request, response);
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(granted));
});

function start(issuer, { clients, lives }) {
  const provider = new Provider(issuer, {
    clients,
    cookies: { keys: ["of tests"] },
    findAccount: (context, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    features: {
      devInteractions: { enabled: true },
      rpInitiatedLogout: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (context, resource, client) => ({
          scope: "cluster",
          audience: resource,
          accessTokenFormat: "jwt",
          accessTokenTTL: lives[client.clientId],
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
    issueRefreshToken: (context, client) => client.grantTypeAllowed("refresh_token"),
    pkce: { required: () => true },
  });
  provider.on("grant.success", ({ oidc }) => {
    const name = `${oidc.params.grant_type} ${oidc.client.clientId}`;
    granted[name] = (granted[name] ?? 0) + 1;
  });
  provider.on("server_error", (context, error) => console.error(error));
  serve = provider.callback();
  console.log("ready");
}

server.listen(0, "localhost", () => {
  const issuer = `http://localhost:${server.address().port}`;
  const lines = createInterface({ input: process.stdin });
  lines.once("line", (line) => start(issuer, JSON.parse(line)));
  lines.once("close", () => process.exit());
  console.log(issuer);
});
