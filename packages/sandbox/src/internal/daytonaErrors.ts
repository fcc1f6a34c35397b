/**
 * What Daytona's errors mean to a launcher.
 */
import * as Sandbox from "../Sandbox.ts"

/** What the SDK's errors have: its classes aren't at hand where it isn't loaded yet. */
interface SdkError {
  readonly name: string
  readonly message: string
  readonly statusCode?: number | undefined
  readonly code?: string | undefined
  readonly source?: string | undefined
  readonly headers?: Readonly<Record<string, unknown>> | undefined
}

const isSdkError = (cause: unknown): cause is SdkError => cause instanceof Error

/** The HTTP status that the SDK's error tells, if it does. */
export const statusOf = (cause: unknown): number | undefined => isSdkError(cause) ? cause.statusCode : undefined

/** Whether there's no such file, as the sandbox says itself. */
export const isNoFile = (cause: unknown): boolean => isSdkError(cause) && cause.code === "FILE_NOT_FOUND"

/** Whether the program in the sandbox that serves its files and processes answered, so that the sandbox runs. */
export const isFromInside = (cause: unknown): boolean => isSdkError(cause) && cause.source === "DAYTONA_DAEMON"

/** An error of an operation. */
export const error = (
  operation: Sandbox.SandboxError["operation"],
  reason: Sandbox.SandboxError["reason"]
) => new Sandbox.SandboxError({ kind: "daytona", operation, reason })

/** What the SDK failed with, as an error of an operation. */
export const toError = (operation: Sandbox.SandboxError["operation"]) => (cause: unknown) =>
  error(operation, toReason(cause))

// Daytona answers with JSON: a page is of a proxy or a load balancer in between, and says nothing of the sandbox.
const isPage = (cause: unknown) =>
  isSdkError(cause) && String(cause.headers?.["content-type"] ?? "").includes("text/html")

/** An answer that is none of Daytona's. */
export const odd = (operation: Sandbox.SandboxError["operation"]) =>
  error(operation, new Sandbox.Transient({ problem: "what answers isn't Daytona, or is cut off" }))

const toReason = (cause: unknown): Sandbox.SandboxError["reason"] => {
  const status = statusOf(cause)
  const message = isSdkError(cause) ? cause.message : String(cause)
  const options = { problem: isPage(cause) ? `a page came instead of an answer (HTTP ${status})` : message, cause }
  if (status === 401 || status === 403) return new Sandbox.Denied(options)
  if (isPage(cause)) return new Sandbox.Transient(options)
  switch (status) {
    case 400:
    case 422:
      return new Sandbox.Unsupported(options)
    case 404:
    case 410:
      return new Sandbox.NotFound(options)
  }
  switch (isSdkError(cause) ? cause.name : undefined) {
    case "DaytonaInvalidArgumentError":
      return new Sandbox.Unsupported(options)
    case "DaytonaAuthenticationError":
      return new Sandbox.Denied(options)
    default:
      return new Sandbox.Transient(options)
  }
}

/** What a script's own commands complained of: there are no codes for it. */
export const toScriptError = (operation: Sandbox.SandboxError["operation"], output: string) => {
  const problem = output.trim()
  if (/permission denied|read-only file system|operation not permitted/i.test(problem)) {
    return error(operation, new Sandbox.Denied({ problem }))
  }
  if (/no such file or directory|can't cd|not found/i.test(problem)) {
    return error(operation, new Sandbox.NotFound({ problem }))
  }
  if (/upload was lost|no space left|cannot fork|resource temporarily unavailable/i.test(problem)) {
    return error(operation, new Sandbox.Transient({ problem }))
  }
  return error(operation, new Sandbox.Unsupported({ problem }))
}
