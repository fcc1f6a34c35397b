/**
 * @since 0.1.0
 */
export * as Bridge from "./Bridge.ts"
export * as BridgeServer from "./BridgeServer.ts"
export * as LogFile from "./LogFile.ts"
export * as ProcessTable from "./ProcessTable.ts"
export * as SessionLock from "./SessionLock.ts"
export * as Supervisor from "./Supervisor.ts"
