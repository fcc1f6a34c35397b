/**
 * @since 0.1.0
 */
export * as Bridge from "./Bridge.ts"
