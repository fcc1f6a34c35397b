/**
 * @since 0.1.0
 */
export * as Scripted from "./Scripted.ts"
export * as ScriptedAgent from "./ScriptedAgent.ts"
