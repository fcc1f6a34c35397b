/**
 * @since 0.1.0
 */
export * as ClaudeCode from "./ClaudeCode.ts"
export * as Scripted from "./Scripted.ts"
export * as ScriptedAgent from "./ScriptedAgent.ts"
