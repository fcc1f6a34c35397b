/**
 * What the engine tells about containers, and how their ports are reached.
 */
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Sandbox from "../Sandbox.ts"
import * as Docker from "./dockerClient.ts"

const Bindings = Schema.NullOr(Schema.Record(
  Schema.String,
  Schema.NullOr(Schema.Array(Schema.Struct({ HostIp: Schema.String, HostPort: Schema.String })))
))

const Container = Schema.Struct({
  Id: Schema.String,
  Name: Schema.String,
  Created: Schema.String,
  State: Schema.Struct({ Status: Schema.String, Running: Schema.Boolean, Paused: Schema.Boolean }),
  Config: Schema.Struct({ Image: Schema.String, Labels: Schema.NullOr(Schema.Record(Schema.String, Schema.String)) }),
  HostConfig: Schema.Struct({ NetworkMode: Schema.String, PortBindings: Bindings }),
  NetworkSettings: Schema.Struct({
    Ports: Bindings,
    Networks: Schema.NullOr(Schema.Record(Schema.String, Schema.Struct({ IPAddress: Schema.String })))
  })
})

export type Container = typeof Container.Type

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(Schema.Array(Container)))

/** The containers with these names or ids. */
export const inspect = Effect.fnUntraced(function*(
  client: Docker.Client,
  operation: Docker.Operation,
  names: ReadonlyArray<string>
) {
  const json = yield* client.call(operation, ["inspect", "--type", "container", ...names])
  return yield* Effect.mapError(
    decode(json),
    (cause) =>
      Docker.error(operation, new Sandbox.Unsupported({ problem: "the engine describes containers otherwise", cause }))
  )
})

/** The container with this name or id. */
export const inspectOne = (client: Docker.Client, operation: Docker.Operation, name: string) =>
  Effect.flatMap(inspect(client, operation, [name]), ([container]) =>
    container === undefined
      ? Effect.fail(Docker.error(operation, new Sandbox.NotFound({ problem: `no such container: ${name}` })))
      : Effect.succeed(container))

/** The machine that the engine is on, where the client says that it's another one. */
export const engineHost = (client: Docker.Client, operation: Docker.Operation) =>
  Effect.map(
    client.call(operation, ["context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]),
    (address): string | undefined => {
      const url = URL.parse(address.trim())
      return url === null || !["ssh:", "tcp:", "http:", "https:"].includes(url.protocol) ? undefined : url.hostname
    }
  )

const usesHostNetwork = ({ HostConfig }: Container) => HostConfig.NetworkMode === "host"

const publishedPorts = ({ HostConfig }: Container) =>
  Object.keys(HostConfig.PortBindings ?? {}).flatMap((port) => {
    const [number, protocol] = port.split("/")
    return protocol === "tcp" ? [Number(number)] : []
  })

/** Once ports are published they're what is reached, with every engine alike. */
export const ports = (container: Container): Sandbox.Sandbox["Service"]["ports"] => {
  const published = publishedPorts(container)
  return Arr.isArrayNonEmpty(published) && !usesHostNetwork(container) ? published : "any"
}

/** Only the host's own network has an address that nobody else reaches. */
export const hostname = (container: Container, engine: string | undefined): string =>
  usesHostNetwork(container) && engine === undefined ? "127.0.0.1" : "0.0.0.0"

const isLoopback = (address: string) => address === "::1" || address.startsWith("127.")
const isEverywhere = (address: string) => address === "" || address === "0.0.0.0" || address === "::"

/** How a port is reached, or what keeps it from being reached. */
export const address = (
  container: Container,
  port: number,
  engine: string | undefined
): { readonly host: string; readonly port: string } | { readonly problem: string } => {
  if (usesHostNetwork(container)) return { host: engine ?? "127.0.0.1", port: String(port) }
  if (ports(container) !== "any") {
    const bindings = container.NetworkSettings.Ports?.[`${port}/tcp`] ?? []
    const binding = bindings.find(({ HostIp }) => !HostIp.includes(":")) ?? bindings[0]
    if (binding === undefined) return { problem: `port ${port} isn't published` }
    const { HostIp, HostPort } = binding
    if (isEverywhere(HostIp)) return { host: engine ?? "127.0.0.1", port: HostPort }
    if (engine !== undefined && !isLoopback(engine) && isLoopback(HostIp)) {
      return { problem: `port ${port} is published on ${HostIp} of ${engine}, where only that machine reaches it` }
    }
    return { host: HostIp.includes(":") ? `[${HostIp}]` : HostIp, port: HostPort }
  }
  const own = Object.values(container.NetworkSettings.Networks ?? {}).find(({ IPAddress }) => IPAddress !== "")
  if (own === undefined) return { problem: "the container publishes no port, and has no address" }
  if (engine !== undefined) return { problem: `the container publishes no port on ${engine}` }
  return { host: own.IPAddress, port: String(port) }
}
