/**
 * @since 0.1.0
 */
export * as DaytonaSandbox from "./DaytonaSandbox.ts"

/**
 * @since 0.1.0
 */
export * as DockerSandbox from "./DockerSandbox.ts"

/**
 * @since 0.1.0
 */
export * as Executable from "./Executable.ts"

/**
 * @since 0.1.0
 */
export * as LocalSandbox from "./LocalSandbox.ts"

/**
 * @since 0.1.0
 */
export * as Sandbox from "./Sandbox.ts"
