/**
 * Docker containers as sandboxes, over the `docker` program: what its contexts and DOCKER_HOST name is the engine.
 *
 * Programs run by `docker exec`, with `sh`, `cat`, `mkdir`, `chmod`, `mv`, `rm` and `wc` of the image. A started one
 * keeps a `docker` process of the host until its end or that of the sandbox's scope, and goes on without it.
 *
 * @since 0.1.0
 */
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import type { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import * as Docker from "./internal/dockerClient.ts"
import * as Container from "./internal/dockerContainer.ts"
import { createArguments } from "./internal/dockerCreate.ts"
import * as Exec from "./internal/dockerExec.ts"
import { feed } from "./internal/feed.ts"
import * as Sandbox from "./Sandbox.ts"

/**
 * Something of the engine's machine that a container sees in a directory of its own.
 *
 * @category models
 * @since 0.1.0
 */
export interface Mount {
  /** An absolute path on the engine's machine, or the name of a volume. */
  readonly source: string
  /** An absolute path in the container. */
  readonly target: string
  /** Absent, false. */
  readonly readOnly?: boolean | undefined
}

/**
 * A container that Gangway created.
 *
 * @category models
 * @since 0.1.0
 */
export interface CreatedContainer {
  readonly id: string
  readonly name: string
  readonly image: string
  /** As the engine tells, such as `running`, `paused`, `exited`. */
  readonly status: string
  /** As the engine tells, an ISO time. */
  readonly created: string
  readonly labels: Readonly<Record<string, string>>
}

/**
 * Which engine is asked, and how.
 *
 * @category options
 * @since 0.1.0
 */
export interface EngineOptions {
  /** The program and what all its commands begin with, such as `["docker", "--context", "build"]`; `["docker"]`. */
  readonly client?: readonly [string, ...Array<string>] | undefined
}

/**
 * What a container is created with.
 *
 * @category options
 * @since 0.1.0
 */
export interface CreateOptions extends EngineOptions {
  /** Pulled where the engine lacks it. Its entry point isn't run. */
  readonly image: string
  /** Absent, the engine chooses. */
  readonly name?: string | undefined
  /** As Docker writes it, such as `2g`; absent, no limit. */
  readonly memory?: string | undefined
  /** Absent, no limit. */
  readonly cpus?: number | undefined
  /** The most processes and threads; absent, the engine's limit. */
  readonly pids?: number | undefined
  /** Added to the one that `list` finds it by. */
  readonly labels?: Readonly<Record<string, string>> | undefined
  /** Who runs programs, as `name`, `id` or `id:group`; absent, the image's. */
  readonly user?: string | undefined
  /** Where programs run; absent, the image's. */
  readonly directory?: string | undefined
  readonly mounts?: ReadonlyArray<Mount> | undefined
  /** Absent, the engine's default. */
  readonly network?: string | undefined
  /** For every program. Seen by whoever may inspect the container: no place for secrets. */
  readonly env?: Readonly<Record<string, string>> | undefined
  /**
   * The ports that are reached from outside, each from a port of the engine's machine that changes with each start;
   * `[4321]`. With none, and with the network `host`, the container's own address is used, and any port of it: that
   * takes an engine on this very machine, and Linux.
   */
  readonly ports?: ReadonlyArray<number> | undefined
  /** The engine machine's address that ports are published on; 127.0.0.1. */
  readonly publishAddress?: string | undefined
  /** Whether it stays when the scope ends; false. */
  readonly keep?: boolean | undefined
}

/**
 * Which container is used.
 *
 * @category options
 * @since 0.1.0
 */
export interface AttachOptions extends EngineOptions {
  /** Its name, its id or the beginning of its id. */
  readonly container: string
  /** Who runs programs; absent, the container's user. */
  readonly user?: string | undefined
}

/**
 * The label of what Gangway created.
 *
 * @category constants
 * @since 0.1.0
 */
export const label = "dev.gangway.sandbox"

/**
 * Creates a container and starts it. It's removed with the scope, with its anonymous volumes, unless it's to be kept.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fnUntraced(function*(
  options: CreateOptions
): Effect.fn.Return<Sandbox.Sandbox["Service"], Sandbox.SandboxError, ChildProcessSpawner | Scope.Scope> {
  const client = yield* Docker.make(options.client ?? ["docker"])
  const found = yield* Effect.exit(client.call("create", ["image", "inspect", "--format", "{{.Id}}", options.image]))
  if (Exit.isFailure(found)) yield* client.call("create", ["pull", "--quiet", options.image], { timeout: false })
  let keep = false
  const creation = `${Math.abs(yield* Random.nextInt).toString(36)}${Math.abs(yield* Random.nextInt).toString(36)}`
  const labels = { ...options.labels, [label]: "1", [creationLabel]: creation }
  const own = yield* Scope.fork(yield* Effect.scope)
  return yield* Effect.gen(function*() {
    const id = yield* Effect.acquireRelease(
      client.call("create", ["create", ...createArguments({ ...options, labels })]).pipe(
        Effect.map((printed) => printed.trim()),
        Effect.tapError(() => removeCreation(client, creation))
      ),
      // What can't be removed now is found by its label.
      (id) => keep ? Effect.void : Effect.ignore(removeWith(client, id))
    )
    yield* client.call("create", ["start", id])
    const sandbox = yield* attachWith(client, "create", id, [])
    keep = options.keep === true
    return sandbox
  }).pipe(
    Scope.provide(own),
    // One that can't be used isn't kept, nor until the scope ends.
    Effect.onExit((exit) => Exit.isFailure(exit) ? Scope.close(own, exit) : Effect.void)
  )
})

/**
 * Uses a container that exists; it may be stopped. It stays when the scope ends.
 *
 * @category constructors
 * @since 0.1.0
 */
export const attach = Effect.fnUntraced(function*(
  options: AttachOptions
): Effect.fn.Return<Sandbox.Sandbox["Service"], Sandbox.SandboxError, ChildProcessSpawner | Scope.Scope> {
  const client = yield* Docker.make(options.client ?? ["docker"])
  return yield* attachWith(
    client,
    "attach",
    options.container,
    options.user === undefined ? [] : ["--user", options.user]
  )
})

/**
 * A container of its own.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (
  options: CreateOptions
): Layer.Layer<Sandbox.Sandbox, Sandbox.SandboxError, ChildProcessSpawner> =>
  Layer.effect(Sandbox.Sandbox, make(options))

/**
 * A container that exists.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerAttach = (
  options: AttachOptions
): Layer.Layer<Sandbox.Sandbox, Sandbox.SandboxError, ChildProcessSpawner> =>
  Layer.effect(Sandbox.Sandbox, attach(options))

/**
 * The containers that Gangway created on this engine, whoever did.
 *
 * @category management
 * @since 0.1.0
 */
export const list = Effect.fnUntraced(function*(
  options: EngineOptions = {}
): Effect.fn.Return<ReadonlyArray<CreatedContainer>, Sandbox.SandboxError, ChildProcessSpawner> {
  const client = yield* Docker.make(options.client ?? ["docker"])
  const printed = yield* client.call("list", ["ps", "--all", "--quiet", "--no-trunc", "--filter", `label=${label}`])
  const ids = printed.split("\n").filter((id) => id !== "")
  // One that's removed meanwhile isn't there.
  const found = yield* Effect.forEach(ids, (id) =>
    Effect.catchIf(
      Effect.asSome(Container.inspectOne(client, "list", id)),
      isNotFound,
      () => Effect.succeedNone
    ), { concurrency: 4 })
  return Arr.getSomes(found).map(({ Config, Created, Id, Name, State }) => ({
    id: Id,
    name: Name.replace("/", ""),
    image: Config.Image,
    status: State.Status,
    created: Created,
    labels: Config.Labels ?? {}
  }))
})

/**
 * Removes a container with all that runs in it and its anonymous volumes; one that's gone already is no error.
 *
 * @category management
 * @since 0.1.0
 */
export const remove = Effect.fnUntraced(function*(
  container: string,
  options: EngineOptions = {}
): Effect.fn.Return<void, Sandbox.SandboxError, ChildProcessSpawner> {
  yield* removeWith(yield* Docker.make(options.client ?? ["docker"]), container)
})

// What a failed creation left is found by it.
const creationLabel = "dev.gangway.creation"

// The program that creates a container may be lost before it tells which one it is.
const removeCreation = (client: Docker.Client, creation: string) =>
  client.call("create", ["ps", "--all", "--quiet", "--no-trunc", "--filter", `label=${creationLabel}=${creation}`])
    .pipe(
      Effect.flatMap((ids) =>
        Effect.forEach(ids.split("\n").filter((id) => id !== ""), (id) => removeWith(client, id))
      ),
      Effect.ignore
    )

const removeWith = (client: Docker.Client, container: string) =>
  client.call("remove", ["rm", "--force", "--volumes", container]).pipe(
    Effect.asVoid,
    Effect.catchIf(isNotFound, () => Effect.void)
  )

const isNotFound = (error: Sandbox.SandboxError) => error.reason._tag === "NotFound"

const maxText = 1024 * 1024

const attachWith = Effect.fnUntraced(function*(
  client: Docker.Client,
  operation: Docker.Operation,
  name: string,
  user: ReadonlyArray<string>
) {
  const scope = yield* Effect.scope
  const container = yield* Container.inspectOne(client, operation, name)
  const engine = yield* Container.engineHost(client, operation)
  const id = container.Id
  const exec = (operation: Docker.Operation, options: Exec.ExecOptions) =>
    Exec.exec(client, operation, [...user, id], options)

  const start: Sandbox.Sandbox["Service"]["start"] = Effect.fnUntraced(function*(options) {
    // The client stays when this is done, for it tells how the program ends.
    const own = yield* Scope.fork(scope)
    const running = yield* exec("start", {
      script: Exec.startScript,
      cwd: options.cwd,
      args: [options.log, ...options.command],
      env: options.env,
      stdin: "pipe",
      keep: 4096
    }).pipe(
      Effect.tap((running) => running.pid),
      Effect.tap((running) =>
        feed(running.handle, new TextEncoder().encode(`${Redacted.value(options.stdinLine)}\n`), running.ended)
      ),
      Effect.tap((running) => running.read),
      Scope.provide(own),
      Effect.onExit((exit) => Exit.isFailure(exit) ? Scope.close(own, exit) : Effect.void)
    )
    let exitCode = Option.none<number>()
    yield* running.ended.pipe(
      Effect.map((ended) => ended.exitCode),
      // The client ends as the shell did that was to tell: with 137 where the container was stopped. Any other end of
      // it is that of its connection, and says nothing of the program.
      Effect.catch(() => Effect.filterOrFail(running.handle.exitCode, (code) => code > 128)),
      Effect.map((code) => {
        exitCode = Option.some(code)
      }),
      Effect.ignore,
      Effect.ensuring(Scope.close(own, Exit.void)),
      Effect.forkIn(scope)
    )
    return { exitCode: Effect.sync(() => exitCode) }
  })

  const run: Sandbox.Sandbox["Service"]["run"] = Effect.fnUntraced(function*(options) {
    const running = yield* exec("run", {
      script: Exec.runScript,
      cwd: options.cwd,
      args: options.command,
      env: options.env,
      stdin: "ignore",
      keep: maxText
    })
    let over = false
    // Nothing that the client does ends what runs in the container.
    yield* Effect.addFinalizer(() => over ? Effect.void : Effect.ignore(kill(running)))
    yield* running.pid
    const { exitCode, stdout } = yield* running.ended.pipe(
      Effect.timeoutOrElse({
        duration: options.timeout,
        orElse: () =>
          Effect.fail(Docker.error("run", new Sandbox.Transient({ problem: `${options.command[0]} took too long` })))
      })
    )
    over = true
    return { exitCode, stdout: new TextDecoder().decode(stdout) }
  }, Effect.scoped)

  const kill = Effect.fnUntraced(
    function*(running: Exec.Running) {
      const pid = yield* running.pid
      const killing = yield* exec("run", { script: Exec.killScript, args: [pid], stdin: "ignore", keep: 0 })
      yield* killing.ended
    },
    Effect.scoped,
    Effect.timeout("5 seconds")
  )

  return Sandbox.Sandbox.of({
    id,
    kind: "docker",
    hostname: Container.hostname(container, engine),
    ports: Container.ports(container),
    start,
    run,

    readFile: Effect.fnUntraced(
      function*(file) {
        const running = yield* exec("readFile", {
          script: Exec.readScript,
          args: [file],
          stdin: "ignore",
          keep: Number.POSITIVE_INFINITY
        })
        yield* running.pid
        const { exitCode, stdout } = yield* running.ended
        return exitCode === 0 ? Option.some(stdout) : Option.none()
      },
      Effect.scoped
    ),

    writeFile: Effect.fnUntraced(function*(file, content, mode = 0o644) {
      const suffix = (yield* Random.nextInt).toString(36)
      const running = yield* exec("writeFile", {
        script: Exec.writeScript,
        args: [file, mode.toString(8), String(content.length), `${suffix}.part`],
        stdin: "pipe",
        keep: 4096
      })
      yield* running.pid
      yield* feed(running.handle, content, running.ended)
      yield* running.ended
    }, Effect.scoped),

    endpoint: Effect.fnUntraced(function*(port) {
      const now = yield* Container.inspectOne(client, "endpoint", id)
      if (!now.State.Running || now.State.Paused) {
        return yield* Docker.error("endpoint", new Sandbox.NotRunning({ problem: `it's ${now.State.Status}` }))
      }
      const address = Container.address(now, port, engine)
      if ("problem" in address) {
        return yield* Docker.error("endpoint", new Sandbox.Unsupported(address))
      }
      return { url: new URL(`http://${address.host}:${address.port}`), headers: {} }
    }),

    wake: Effect.gen(function*(): Effect.fn.Return<"already-running" | "restarted", Sandbox.SandboxError> {
      const { State } = yield* Container.inspectOne(client, "wake", id)
      if (State.Paused) {
        yield* client.call("wake", ["unpause", id])
        return "already-running"
      }
      if (State.Running) return "already-running"
      yield* client.call("wake", ["start", id])
      return "restarted"
    }).pipe(
      // Somebody else was quicker to unpause it, or to pause it.
      Effect.retry({ while: ({ reason }) => reason._tag === "NotRunning", times: 3 })
    )
  })
})
