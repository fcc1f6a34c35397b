/**
 * @since 0.1.0
 */
export * as Acp from "./Acp.ts"
export * as ClaudeCode from "./ClaudeCode.ts"
export * as Codex from "./Codex.ts"
export * as FoundAgent from "./FoundAgent.ts"
export * as KnownAgents from "./KnownAgents.ts"
export * as LoopbackServer from "./LoopbackServer.ts"
export * as Scripted from "./Scripted.ts"
export * as ScriptedAgent from "./ScriptedAgent.ts"
