/**
 * What to say of a file that can't be read or written.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { PlatformError } from "effect/PlatformError"
import * as Predicate from "effect/Predicate"

// The codes that somebody can do something about.
const meanings: Readonly<Record<string, string>> = {
  EACCES: "permission denied",
  EDQUOT: "the user's quota is used up",
  EEXIST: "something else has that name",
  EIO: "the disk fails",
  EISDIR: "a directory has its place: remove it",
  EMFILE: "too many files are open",
  ENFILE: "too many files are open",
  ENOENT: "it isn't there and can't be made",
  ENOSPC: "no space is left",
  ENOTDIR: "a file has a directory's place: remove it",
  ENOTEMPTY: "a directory has its place: remove it",
  EPERM: "that isn't permitted",
  EROFS: "the file system is read-only"
}

/** A code of the system, with what that means. */
export const explained = (code: string): string => {
  const meaning = meanings[code]
  return meaning === undefined ? code : `${code} (${meaning})`
}

/** The system's code of an error, or what Effect calls it. */
export const codeOf = ({ reason }: PlatformError): string => {
  const { cause } = reason
  return Predicate.hasProperty(cause, "code") && typeof cause.code === "string" ? cause.code : reason._tag
}

/** What failed: the file's name, the operation and the system's code, with what that means. */
export const problemOf = (error: PlatformError): string => {
  const { reason } = error
  const code = codeOf(error)
  const path = reason._tag !== "BadArgument" && typeof reason.pathOrDescriptor === "string"
    // What's in the way is above it.
    ? `${reason.pathOrDescriptor.split("/").slice(code === "ENOTDIR" ? -2 : -1).join("/")}: `
    : ""
  return `${path}${reason.method}: ${explained(code)}`
}

/** @internal */
export const unavailable = (error: PlatformError): Bridge.LogUnavailable =>
  new Bridge.LogUnavailable({ problem: problemOf(error) })
