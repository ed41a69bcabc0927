/** TLS, and the client's identity. Files are read again when they have changed. */

import { readFileSync, statSync } from "node:fs";
import { createSecureContext } from "node:tls";
import * as grpc from "@grpc/grpc-js";
import { now } from "./clock.js";
import type { ClientConfig } from "./config.js";
import { OncelogError } from "./errors.js";

const MAX_SECRET_FILE = 1 << 20;
/** Files are looked at no more often. */
const LOOK_EVERY = 100;

type Security = Pick<
  ClientConfig,
  "tls" | "tlsCaFile" | "tlsCertFile" | "tlsKeyFile" | "tokenFile" | "token"
>;

/** Whether it speaks TLS. */
export function isSecured(s: Security): boolean {
  return s.tls || s.tlsCaFile !== null || s.tlsCertFile !== null;
}

function bad(message: string): OncelogError {
  return new OncelogError("INVALID_CONFIG", message);
}

/** Throws INVALID_CONFIG for settings that contradict each other, and files that are of no use. */
export function checkSecurity(s: Security): void {
  if ((s.tlsCertFile === null) !== (s.tlsKeyFile === null)) {
    throw bad("tlsCertFile and tlsKeyFile belong together");
  }
  if (s.token !== null && s.tokenFile !== null) throw bad("token contradicts tokenFile");
  if ((s.token !== null || s.tokenFile !== null) && !isSecured(s)) {
    throw bad("a token needs TLS: in the clear everybody on the way could use it");
  }
  if (isSecured(s)) channelCredentials(s);
  if (s.tokenFile !== null) readToken(s.tokenFile);
}

function read(setting: string, path: string): Buffer {
  try {
    if (statSync(path).size > MAX_SECRET_FILE) throw new Error("it is too large");
    return readFileSync(path);
  } catch (e) {
    throw bad(`${setting}=${path} cannot be read: ${e instanceof Error ? e.message : e}`);
  }
}

function readToken(path: string): string {
  const token = read("tokenFile", path).toString("utf8").trim();
  if (!/^[\x21-\x7e]+$/.test(token)) throw bad(`tokenFile=${path} has no token`);
  return token;
}

function channelCredentials(s: Security): grpc.ChannelCredentials {
  const ca = s.tlsCaFile === null ? null : read("tlsCaFile", s.tlsCaFile);
  const cert = s.tlsCertFile === null ? null : read("tlsCertFile", s.tlsCertFile);
  const key = s.tlsKeyFile === null ? null : read("tlsKeyFile", s.tlsKeyFile);
  try {
    const given = { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) };
    createSecureContext({ ...given, minVersion: "TLSv1.2" });
    return grpc.credentials.createSsl(ca, key, cert);
  } catch (e) {
    throw bad(`the files of TLS are of no use: ${e instanceof Error ? e.message : e}`);
  }
}

/** Sign that a file was replaced. */
function versions(paths: readonly (string | null)[]): string {
  return paths
    .map((path) => {
      const found = path === null ? undefined : statSync(path, { throwIfNoEntry: false });
      return found === undefined ? "" : `${found.ino} ${found.size} ${found.mtimeMs}`;
    })
    .join("|");
}

/** A client's credentials, of the files as they are. */
export class Credentials {
  #version: string;
  #channel: grpc.ChannelCredentials | undefined; // of certificates
  #lookedAt = now();
  #token: string | null;
  #tokenVersion: string;

  constructor(readonly config: Security) {
    this.#version = this.#versionNow();
    if (isSecured(config)) this.#channel = channelCredentials(config);
    this.#token = config.token ?? (config.tokenFile === null ? null : readToken(config.tokenFile));
    this.#tokenVersion = versions([config.tokenFile]);
  }

  #versionNow(): string {
    const { tlsCaFile, tlsCertFile, tlsKeyFile } = this.config;
    return versions([tlsCaFile, tlsCertFile, tlsKeyFile]);
  }

  /** Whether there are other certificates since it was asked last. */
  haveChanged(): boolean {
    if (!isSecured(this.config) || now() - this.#lookedAt < LOOK_EVERY) return false;
    this.#lookedAt = now();
    const version = this.#versionNow();
    if (version === this.#version) return false;
    try {
      this.#channel = channelCredentials(this.config);
    } catch {
      return false; // they are being written: the earlier content serves until that is done
    }
    this.#version = version;
    return true;
  }

  ofChannel(): grpc.ChannelCredentials {
    if (this.#channel === undefined) return grpc.credentials.createInsecure();
    if (this.#token === null) return this.#channel;
    const ofCall = grpc.credentials.createFromMetadataGenerator((_, tell) => {
      const metadata = new grpc.Metadata();
      metadata.set("authorization", `Bearer ${this.#tokenNow()}`);
      tell(null, metadata);
    });
    return grpc.credentials.combineChannelCredentials(this.#channel, ofCall);
  }

  #tokenNow(): string {
    const { tokenFile } = this.config;
    if (tokenFile !== null) {
      const version = versions([tokenFile]);
      if (version !== this.#tokenVersion) {
        try {
          this.#token = readToken(tokenFile);
          this.#tokenVersion = version;
        } catch {
          // It is being written: the one before serves until that is done.
        }
      }
    }
    return this.#token ?? "";
  }
}
