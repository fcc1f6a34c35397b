/**
 * The language of hosts and bridges, and what a driver is: all that a bridge program names.
 *
 * @since 0.1.0
 */
export * from "@gangway/protocol/Bridge"
export { type AgentSession, type Driver, type DriverDefinition, noCapabilities, TurnFailed } from "./Driver.ts"
