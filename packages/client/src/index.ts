/**
 * @since 0.1.0
 */
export * as BridgeClient from "./BridgeClient.ts"

/**
 * @since 0.1.0
 */
export * as BridgeUnavailable from "./BridgeUnavailable.ts"

/**
 * @since 0.1.0
 */
export * as HostTools from "./HostTools.ts"

/**
 * @since 0.1.0
 */
export * as Launcher from "./Launcher.ts"

/**
 * @since 0.1.0
 */
export * as Session from "./Session.ts"

/**
 * @since 0.1.0
 */
export * as Status from "./Status.ts"

/**
 * @since 0.1.0
 */
export * as TokenStore from "./TokenStore.ts"

/**
 * @since 0.1.0
 */
export * as Turn from "./Turn.ts"

/**
 * @since 0.1.0
 */
export * as WebSocketConstructor from "./WebSocketConstructor.ts"
