import { DockerSandbox, Sandbox } from "@gangway/sandbox"
import { Effect, Layer } from "effect"
import { ChildProcess, ChildProcessSpawner } from "effect/unstable/process"
import { sandboxConformance } from "../../../test/conformance/sandbox.ts"
import * as Docker from "../../../test/docker/Docker.ts"

// A container that other processes find by the environment.
const container = Layer.effect(
  Sandbox.Sandbox,
  Effect.gen(function*() {
    const { client, image } = yield* Docker.Docker
    const sandbox = yield* DockerSandbox.make({ client, image })
    process.env["GANGWAY_TEST_CONTAINER"] = JSON.stringify({ client, container: sandbox.id })
    return sandbox
  })
)

const docker = Effect.fnUntraced(function*(...args: ReadonlyArray<string>) {
  const { client: [program, ...global] } = yield* Docker.Docker
  const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
  return (yield* spawner.string(ChildProcess.make(program, [...global, ...args]), { includeStderr: true })).trim()
})

sandboxConformance({
  name: "DockerSandbox",
  module: new URL("../../../test/docker/attached.ts", import.meta.url).pathname,
  skipped: Docker.skipped,
  timeout: Docker.patience,
  layer: Layer.provideMerge(container, Docker.layer),
  server: ({ hostname, port }) => ["httpd", "-f", "-p", `${hostname}:${port}`],
  stop: (sandbox) => docker("stop", sandbox.id),
  gone: Effect.gen(function*() {
    const { client, image } = yield* Docker.Docker
    const sandbox = yield* DockerSandbox.make({ client, image })
    yield* docker("rm", "--force", sandbox.id)
    return sandbox
  })
})
