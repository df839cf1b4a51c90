// Passes for one visitor: a server signs them, a page uses them.

import { InvalidArgument } from "./errors.ts";
import type { PassOptions } from "./types.ts";

export const IDENTIFIER = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;
const PREFIX = "slv_";
const FINGERPRINT_BYTES = 9;
const TAG_BYTES = 32;

/** The SHA-256 of the key, which the service knows, signs: base64url of a JSON array and its HMAC. */
export async function visitorPass(key: string, { visitor, expiresInS = 3600, bandits }: PassOptions): Promise<string> {
  if (!/^[!-~]+$/.test(key) || key.startsWith(PREFIX)) throw new InvalidArgument("key must be an API key, and not a pass");
  if (typeof visitor !== "string" || !IDENTIFIER.test(visitor)) throw new InvalidArgument("visitor must be letters, digits and . _ : - (at most 128)");
  if (!(Number.isSafeInteger(expiresInS) && expiresInS > 0)) throw new InvalidArgument("expiresInS must be a whole number of seconds, at least 1");
  if (!(bandits ?? []).every((each) => IDENTIFIER.test(each))) throw new InvalidArgument("bandits must be a list of names");
  const subtle = globalThis.crypto?.subtle;
  // A page that came over plain HTTP has none.
  if (!subtle) throw new InvalidArgument("visitorPass needs crypto.subtle: call it on your server, which alone may have the key");
  const secret = await subtle.digest("SHA-256", bytes(key));
  const fingerprint = text(new Uint8Array(await subtle.digest("SHA-256", secret)).slice(0, FINGERPRINT_BYTES));
  const terms = [fingerprint, visitor, Math.floor(Date.now() / 1000) + expiresInS, ...(bandits ? [bandits] : [])];
  const signed = JSON.stringify(terms);
  const signer = await subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const tag = await subtle.sign("HMAC", signer, bytes(PREFIX + signed));
  return PREFIX + text(new Uint8Array([...bytes(signed), ...new Uint8Array(tag)]));
}

/** Whom a pass is for; null of an API key, or of none. */
export function visitorOf(key: string | undefined): string | null {
  if (!key?.startsWith(PREFIX)) return null;
  try {
    return JSON.parse(atob(key.slice(PREFIX.length).replace(/-/g, "+").replace(/_/g, "/")).slice(0, -TAG_BYTES))[1];
  } catch {
    throw new InvalidArgument("key is a damaged pass");
  }
}

function bytes(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

function text(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}
