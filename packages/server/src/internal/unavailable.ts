/**
 * What to say of a file that can't be read or written.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { PlatformError } from "effect/PlatformError"
import * as Predicate from "effect/Predicate"

/** What failed: the file's name, the operation and the system's code. */
export const problemOf = ({ reason }: PlatformError): string => {
  const cause = reason.cause
  const code = Predicate.hasProperty(cause, "code") && typeof cause.code === "string" ? cause.code : reason._tag
  const path = reason._tag !== "BadArgument" && typeof reason.pathOrDescriptor === "string"
    ? `${reason.pathOrDescriptor.slice(reason.pathOrDescriptor.lastIndexOf("/") + 1)}: `
    : ""
  return `${path}${reason.method}: ${code}`
}

/** @internal */
export const unavailable = (error: PlatformError): Bridge.LogUnavailable =>
  new Bridge.LogUnavailable({ problem: problemOf(error) })
