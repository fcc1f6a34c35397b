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
  EMFILE: "too many files are open",
  ENFILE: "too many files are open",
  ENOENT: "it isn't there and can't be made",
  ENOSPC: "no space is left",
  ENOTDIR: "a part of its path is a file",
  EPERM: "that isn't permitted",
  EROFS: "the file system is read-only"
}

/** What failed: the file's name, the operation and the system's code, with what that means. */
export const problemOf = ({ reason }: PlatformError): string => {
  const cause = reason.cause
  const code = Predicate.hasProperty(cause, "code") && typeof cause.code === "string" ? cause.code : reason._tag
  const path = reason._tag !== "BadArgument" && typeof reason.pathOrDescriptor === "string"
    ? `${reason.pathOrDescriptor.slice(reason.pathOrDescriptor.lastIndexOf("/") + 1)}: `
    : ""
  const meaning = meanings[code]
  return `${path}${reason.method}: ${code}${meaning === undefined ? "" : ` (${meaning})`}`
}

/** @internal */
export const unavailable = (error: PlatformError): Bridge.LogUnavailable =>
  new Bridge.LogUnavailable({ problem: problemOf(error) })
