/**
 * A Daytona on the loopback: its API, its sandboxes as processes and directories of this machine, and the proxies in
 * front of their ports. It's driven by Daytona's own SDK, and its answers have the types of Daytona's own clients.
 */
import type {
  CreateSandbox,
  ListSandboxesResponse,
  PortPreviewUrl,
  Sandbox as SandboxDto,
  SandboxListItem,
  SandboxState
} from "@daytona/api-client"
import { randomBytes } from "node:crypto"
import * as fs from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type Answer, type Origin, Refusal, toErrorResponse } from "./Answers.ts"
import { PreviewProxy } from "./PreviewProxy.ts"
import { killAll, marked } from "./Processes.ts"
import { type Reply, Toolbox } from "./Toolbox.ts"

/** A sandbox, as a test sees it. */
export interface LoopbackSandbox {
  readonly id: string
  readonly labels: Record<string, string>
  state: SandboxState
  readonly toolbox: Toolbox
  readonly proxies: Map<number, PreviewProxy>
  readonly body: CreateSandbox
  token: string
  autoStop: number
  lastActivity: number
  /** Requests to its proxies that are answered with 502 from now on. */
  badGateways: number
  /** Answers that tell the token of a port and are out of date by the time they're used. */
  staleTokens: number
  /** Calls of its own API that fail with 400 from now on, as they do a moment after a start. */
  unresolved: number
  errorReason?: string
  recoverable?: boolean
}

export class DaytonaServer {
  readonly apiKey = `dtn_${randomBytes(16).toString("hex")}`
  readonly answers: Array<Answer> = []
  readonly sandboxes = new Map<string, LoopbackSandbox>()
  /** Each request of the API's, as method and path. */
  readonly requests: Array<string> = []
  /** How long a change of state takes, in milliseconds. */
  settling = 150
  /** How long Daytona's minute is here, in milliseconds. */
  minute = 60_000
  /** After how long without a byte the proxies cut a connection. */
  idleCut: number | undefined
  /** Answers a request instead of Daytona, as what is in between may: by anything, or never. */
  interfere: ((method: string, path: string) => Response | Promise<Response> | undefined) | undefined
  /** The state that sandboxes come to when they're created. */
  created: SandboxState = "started"
  private readonly root = fs.mkdtempSync(join(tmpdir(), "gangway-daytona-"))
  private readonly server: ReturnType<typeof Bun.serve>
  private readonly timers = new Set<ReturnType<typeof setTimeout>>()
  private readonly autoStops: ReturnType<typeof setInterval>

  constructor() {
    this.server = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      idleTimeout: 0,
      fetch: (request) => this.answer(request)
    })
    this.autoStops = setInterval(() => {
      for (const sandbox of this.sandboxes.values()) {
        if (sandbox.state !== "started" || sandbox.autoStop === 0) continue
        if (performance.now() - sandbox.lastActivity > sandbox.autoStop * this.minute) void this.stop(sandbox)
      }
    }, 50)
  }

  get apiUrl(): string {
    return `http://127.0.0.1:${this.server.port}/api`
  }

  get(id: string): LoopbackSandbox {
    const sandbox = this.sandboxes.get(id)
    if (sandbox === undefined) throw new Refusal(404, `Sandbox with ID or name ${id} not found`)
    return sandbox
  }

  /** Stops a sandbox: its processes are gone, its files stay. */
  async stop(sandbox: LoopbackSandbox, state: "stopped" | "archived" | "error" = "stopped"): Promise<void> {
    sandbox.state = state === "archived" ? "archiving" : "stopping"
    for (const proxy of sandbox.proxies.values()) proxy.cut()
    await killAll(sandbox.id)
    await this.settle(sandbox, state)
  }

  /** Another token, as after the old one has run out. */
  rotateToken(sandbox: LoopbackSandbox) {
    sandbox.token = randomBytes(12).toString("hex")
  }

  async close(): Promise<void> {
    clearInterval(this.autoStops)
    for (const timer of this.timers) clearTimeout(timer)
    for (const sandbox of this.sandboxes.values()) await this.remove(sandbox)
    await this.server.stop(true)
    fs.rmSync(this.root, { recursive: true, force: true })
  }

  /** Deletes a sandbox, with all that's in it. */
  async remove(sandbox: LoopbackSandbox): Promise<void> {
    sandbox.state = "destroyed"
    this.sandboxes.delete(sandbox.id)
    for (const proxy of sandbox.proxies.values()) proxy.stop()
    await killAll(sandbox.id)
    fs.rmSync(sandbox.toolbox.home, { recursive: true, force: true })
  }

  private settle(sandbox: LoopbackSandbox, state: SandboxState): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.timers.delete(timer)
        if (this.sandboxes.has(sandbox.id)) sandbox.state = state
        if (state === "started") sandbox.lastActivity = performance.now()
        resolve()
      }, this.settling)
      this.timers.add(timer)
    })
  }

  private start(sandbox: LoopbackSandbox) {
    sandbox.state = sandbox.state === "archived" ? "restoring" : sandbox.state === "paused" ? "resuming" : "starting"
    if (sandbox.state !== "resuming") {
      this.rotateToken(sandbox)
      sandbox.toolbox.restart()
    }
    void this.settle(sandbox, "started")
  }

  private async answer(request: Request): Promise<Response> {
    const { method } = request
    const { pathname } = new URL(request.url)
    const origin: Origin = pathname.startsWith("/api/") ? "api" : "toolbox"
    this.requests.push(`${method} ${pathname}`)
    const other = this.interfere?.(method, pathname)
    if (other !== undefined) return await other
    let reply: Reply
    let from: Origin = origin
    try {
      if (request.headers.get("authorization") !== `Bearer ${this.apiKey}`) {
        throw new Refusal(401, "Invalid credentials", "UNAUTHORIZED", origin === "api" ? "api" : "proxy")
      }
      reply = origin === "api" ? await this.api(request, pathname.slice(4)) : await this.toolbox(request, pathname)
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      from = error.origin ?? origin
      reply = [error.status, toErrorResponse(from, method, pathname, error)]
    }
    const path = origin === "api" ? pathname.slice(4) : `/${pathname.split("/").slice(3).join("/")}`
    const answer = { origin: from, method, path }
    if (reply instanceof Response) {
      this.answers.push({ ...answer, status: reply.status })
      return reply
    }
    const [status, body] = reply
    this.answers.push({ ...answer, status, ...(body === undefined ? {} : { body }) })
    return body === undefined ? new Response(null, { status }) : Response.json(body, { status })
  }

  private async toolbox(request: Request, pathname: string): Promise<Reply> {
    const [, , id, ...route] = pathname.split("/")
    const sandbox = this.sandboxes.get(id!)
    if (sandbox === undefined) throw new Refusal(404, "sandbox not found", undefined, "proxy")
    if (sandbox.state !== "started" || sandbox.unresolved > 0) {
      sandbox.unresolved = Math.max(0, sandbox.unresolved - 1)
      throw new Refusal(400, "bad request: failed to resolve container IP", undefined, "proxy")
    }
    sandbox.lastActivity = performance.now()
    return await sandbox.toolbox.handle(request.method, `/${route.join("/")}`, request)
  }

  private async api(request: Request, pathname: string): Promise<Reply> {
    const url = new URL(request.url)
    const [resource, id, action, argument, last] = pathname.slice(1).split("/").map(decodeURIComponent)
    if (resource !== "sandbox") throw new Refusal(404, `no route ${pathname}`)
    if (id === undefined) {
      return request.method === "POST"
        ? [200, this.toDto(this.create(await request.json() as CreateSandbox))]
        : [200, this.list(JSON.parse(url.searchParams.get("labels") ?? "{}") as Record<string, string>)]
    }
    const sandbox = this.get(id)
    const expect = (...states: ReadonlyArray<SandboxState>) => {
      if (!states.includes(sandbox.state)) {
        throw new Refusal(400, `State change in progress: sandbox is ${sandbox.state}`)
      }
    }
    switch (`${request.method} ${action ?? ""}`) {
      case "GET ":
        return [200, this.toDto(sandbox)]
      case "DELETE ": {
        expect("started", "stopped", "archived", "paused", "error", "build_failed")
        await this.remove(sandbox)
        return [200, this.toDto(sandbox)]
      }
      case "POST start":
        expect("stopped", "archived", "paused")
        this.start(sandbox)
        return [200, this.toDto(sandbox)]
      case "POST recover":
        expect("error")
        if (sandbox.recoverable !== true) throw new Refusal(400, "Sandbox is not recoverable")
        this.start(sandbox)
        return [200, this.toDto(sandbox)]
      case "POST stop":
        expect("started")
        await this.stop(sandbox)
        return [200, this.toDto(sandbox)]
      case "POST archive":
        expect("stopped")
        await this.stop(sandbox, "archived")
        return [200, this.toDto(sandbox)]
      case "POST last-activity":
        sandbox.lastActivity = performance.now()
        return [201]
      case "GET ports":
        if (last !== "preview-url") break
        return [200, await this.preview(sandbox, Number(argument))]
    }
    throw new Refusal(404, `no route ${request.method} ${pathname}`)
  }

  private create(body: CreateSandbox): LoopbackSandbox {
    const id = crypto.randomUUID()
    const home = join(this.root, id)
    fs.mkdirSync(join(home, "tmp"), { recursive: true })
    const sandbox: LoopbackSandbox = {
      id,
      labels: body.labels ?? {},
      state: "creating",
      body,
      toolbox: new Toolbox({
        home,
        env: marked(id, {
          PATH: process.env.PATH ?? "/usr/bin:/bin",
          HOME: home,
          TMPDIR: join(home, "tmp"),
          ...body.env
        })
      }),
      proxies: new Map(),
      token: randomBytes(12).toString("hex"),
      autoStop: body.autoStopInterval ?? 15,
      lastActivity: performance.now(),
      badGateways: 0,
      staleTokens: 0,
      unresolved: 1
    }
    this.sandboxes.set(id, sandbox)
    if (this.created === "error") sandbox.errorReason = "no runner"
    void this.settle(sandbox, this.created)
    return sandbox
  }

  private list(labels: Record<string, string>): ListSandboxesResponse {
    const items = [...this.sandboxes.values()].filter((sandbox) =>
      Object.entries(labels).every(([name, value]) => sandbox.labels[name] === value)
    )
    return {
      items: items.map((sandbox): SandboxListItem => {
        const { env: _, ...item } = this.toDto(sandbox)
        return item
      }),
      nextCursor: null
    }
  }

  private async preview(sandbox: LoopbackSandbox, port: number): Promise<PortPreviewUrl> {
    let proxy = sandbox.proxies.get(port)
    if (proxy === undefined) {
      proxy = new PreviewProxy({
        port,
        refuse: () => {
          if (sandbox.state !== "started") return [400, "bad request: failed to resolve container IP"]
          if (sandbox.badGateways === 0) return undefined
          sandbox.badGateways--
          return [502, "the sandbox is not reached"]
        },
        isAllowed: (token) => sandbox.body.public === true || token === sandbox.token,
        onActivity: () => {
          sandbox.lastActivity = performance.now()
        },
        idleCut: () => this.idleCut
      })
      sandbox.proxies.set(port, proxy)
      await proxy.listen()
    }
    const { token } = sandbox
    if (sandbox.staleTokens > 0) {
      sandbox.staleTokens--
      this.rotateToken(sandbox)
    }
    return { sandboxId: sandbox.id, url: proxy.url, token }
  }

  private toDto(sandbox: LoopbackSandbox): SandboxDto {
    const { body, id, labels, state } = sandbox
    return {
      id,
      organizationId: "loopback",
      name: body.name ?? id,
      user: body.user ?? "daytona",
      env: body.env ?? {},
      labels,
      public: body.public ?? false,
      networkBlockAll: false,
      target: body.target ?? "local",
      cpu: body.cpu ?? 1,
      gpu: 0,
      memory: body.memory ?? 1,
      disk: body.disk ?? 3,
      state,
      autoStopInterval: sandbox.autoStop,
      toolboxProxyUrl: `http://127.0.0.1:${this.server.port}/toolbox`,
      ...(sandbox.errorReason === undefined ? {} : { errorReason: sandbox.errorReason }),
      ...(sandbox.recoverable === undefined ? {} : { recoverable: sandbox.recoverable })
    }
  }
}
