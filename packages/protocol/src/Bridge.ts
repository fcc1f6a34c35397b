/**
 * The language of hosts and bridges: ids, launch options, the listening file, sessions, turns and their parts, ends,
 * errors, and the remote procedures. Schemas only; `docs/protocol.md` says what they mean.
 *
 * @since 0.1.0
 */
export * from "./End.ts"
export * from "./Failure.ts"
export * from "./Fragment.ts"
export * from "./Hello.ts"
export * from "./Id.ts"
export * from "./Json.ts"
export * from "./Launch.ts"
export * from "./Part.ts"
export * from "./Rpcs.ts"
export * from "./Session.ts"
export * from "./Usage.ts"
