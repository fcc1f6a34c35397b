/**
 * The program in a Daytona sandbox that serves its files and processes, on this machine: real shells, pipes and files.
 *
 * It behaves as the facts known of Daytona's own say: a command's text is its shell's standard input; a session's
 * command is read from a file, its input is a pipe that's there a moment later and never ends, input is echoed to the
 * log unless that's suppressed, and a session's end is the end of its processes.
 */
import type {
  Command,
  CreateSessionRequest,
  ExecuteRequest,
  ExecuteResponse,
  FilesDownloadRequest,
  SessionCommandLogsResponse,
  SessionExecuteRequest,
  SessionExecuteResponse,
  SessionSendInputRequest
} from "@daytona/toolbox-api-client"
import { type ChildProcessByStdio, spawn } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import type { Writable } from "node:stream"
import { setTimeout as delay } from "node:timers/promises"
import { Refusal, toErrorResponse } from "./Answers.ts"
import { kill, treeOf } from "./Processes.ts"

interface Running {
  readonly command: string
  readonly directory: string
  readonly isEchoed: boolean
  /** Whether its exit code was told, which is when input is refused for good. */
  isTold: boolean
}

interface Session {
  readonly shell: ChildProcessByStdio<Writable, null, null>
  readonly commands: Map<string, Running>
}

/** An answer, as status and JSON, or one of another form. */
export type Reply = readonly [status: number, body?: unknown] | Response

export class Toolbox {
  /** How long after a command was started its input pipe is made. */
  pipeDelay = 100
  readonly home: string
  private readonly env: Record<string, string>
  private readonly directory: string
  private readonly sessions = new Map<string, Session>()
  private commands = 0

  constructor(options: { readonly home: string; readonly env: Record<string, string> }) {
    this.home = options.home
    this.env = options.env
    this.directory = fs.mkdtempSync(path.join(options.home, ".toolbox-"))
  }

  /** What all sessions' commands and logs say, and all that's in their files. */
  get traces(): string {
    const files = fs.readdirSync(this.directory, { recursive: true, withFileTypes: true })
    return files.filter((file) => file.isFile()).map((file) =>
      fs.readFileSync(path.join(file.parentPath, file.name), "utf8")
    ).join("\n")
  }

  /** After a stop nothing is known of sessions; their files stay. */
  restart() {
    this.sessions.clear()
  }

  get sessionCount(): number {
    return this.sessions.size
  }

  async handle(method: string, route: string, request: Request): Promise<Reply> {
    const [first, ...rest] = route.split("/").slice(1).map(decodeURIComponent)
    switch (`${method} ${first}/${rest[0]}`) {
      case "POST process/execute":
        return [200, await this.execute(await request.json() as ExecuteRequest)]
      case "POST process/session":
      case "GET process/session":
      case "DELETE process/session":
        return await this.session(method, rest.slice(1), request)
      case "POST files/bulk-download":
        return this.download(await request.json() as FilesDownloadRequest)
      case "POST files/bulk-upload":
        return await this.upload(request)
      default:
        throw new Refusal(404, `no route ${method} ${route}`, "NOT_FOUND")
    }
  }

  private execute({ command, cwd, envs, timeout }: ExecuteRequest): Promise<ExecuteResponse> {
    return new Promise((resolve, reject) => {
      const shell = spawn("bash", [], {
        cwd: cwd ?? this.home,
        env: { ...this.env, ...envs },
        detached: true,
        stdio: ["pipe", "pipe", "pipe"]
      })
      const output: Array<Buffer> = []
      let isLate = false
      const timer = timeout === undefined || timeout <= 0 ? undefined : setTimeout(() => {
        isLate = true
        killGroup(shell.pid)
      }, timeout * 1000)
      shell.stdout.on("data", (bytes) => output.push(bytes))
      shell.stderr.on("data", (bytes) => output.push(bytes))
      shell.stdin.on("error", () => {})
      shell.on("error", (error) => reject(new Refusal(400, error.message, "BAD_REQUEST")))
      shell.on("close", (exitCode) => {
        clearTimeout(timer)
        if (isLate) reject(new Refusal(408, "command execution timeout", "PROCESS_EXECUTION_TIMEOUT"))
        else resolve({ exitCode: exitCode ?? -1, result: Buffer.concat(output).toString() })
      })
      shell.stdin.end(command)
    })
  }

  private async session(method: string, route: ReadonlyArray<string>, request: Request): Promise<Reply> {
    const [id, kind, commandId, action] = route
    if (id === undefined) {
      const { sessionId } = await request.json() as CreateSessionRequest
      if (this.sessions.has(sessionId)) throw new Refusal(409, "session already exists", "CONFLICT")
      const shell = spawn("bash", [], {
        cwd: this.home,
        env: this.env,
        detached: true,
        stdio: ["pipe", "ignore", "ignore"]
      })
      shell.stdin.on("error", () => {})
      this.sessions.set(sessionId, { shell, commands: new Map() })
      return [201]
    }
    const session = this.sessions.get(id)
    if (session === undefined) throw new Refusal(404, "session not found", "NOT_FOUND")
    if (method === "DELETE") {
      this.sessions.delete(id)
      endSession(session.shell.pid)
      return [204]
    }
    if (kind === "exec") return await this.start(session, await request.json() as SessionExecuteRequest)
    const command = commandId === undefined ? undefined : session.commands.get(commandId)
    if (command === undefined) throw new Refusal(404, "command not found", "NOT_FOUND")
    switch (action) {
      case "input":
        return await this.input(command, await request.json() as SessionSendInputRequest)
      case "logs": {
        const output = readText(path.join(command.directory, "output.log")) ?? ""
        return [200, { output, stdout: output, stderr: "" } satisfies SessionCommandLogsResponse]
      }
      default: {
        const exitCode = exitCodeOf(command)
        command.isTold = exitCode !== undefined
        return [
          200,
          {
            id: commandId!,
            command: command.command,
            ...(exitCode === undefined ? {} : { exitCode })
          } satisfies Command
        ]
      }
    }
  }

  private async start(session: Session, request: SessionExecuteRequest): Promise<Reply> {
    const cmdId = `command-${++this.commands}`
    const directory = path.join(this.directory, cmdId)
    fs.mkdirSync(directory)
    fs.writeFileSync(path.join(directory, "cmd.sh"), `${request.command}\n`)
    const isAsync = request.runAsync === true || request.async === true
    session.commands.set(cmdId, {
      command: request.command,
      directory,
      isEchoed: request.suppressInputEcho !== true,
      isTold: false
    })
    // The holder keeps a writing end of the pipe open, so the command's input doesn't end.
    session.shell.stdin.write(
      isAsync
        ? `sleep ${this.pipeDelay / 1000}; mkfifo '${directory}/input'\n` +
          `{ while :; do sleep 3600; done; } > '${directory}/input' &\nholder=$!\n` +
          `{ . '${directory}/cmd.sh'; } < '${directory}/input' >> '${directory}/output.log' 2>&1\n` +
          `echo $? > '${directory}/exit'; kill $holder; rm -f '${directory}/input'\n`
        : `{ . '${directory}/cmd.sh'; } < /dev/null >> '${directory}/output.log' 2>&1; echo $? > '${directory}/exit'\n`
    )
    if (isAsync) return [202, { cmdId } satisfies SessionExecuteResponse]
    while (!fs.existsSync(path.join(directory, "exit"))) await delay(10)
    const output = readText(path.join(directory, "output.log")) ?? ""
    const exitCode = Number(readText(path.join(directory, "exit")))
    return [200, { cmdId, output, stdout: output, stderr: "", exitCode } satisfies SessionExecuteResponse]
  }

  private async input(command: Running, { data }: SessionSendInputRequest): Promise<Reply> {
    if (command.isTold) throw new Refusal(410, "command already completed", "COMMAND_ALREADY_COMPLETED")
    const text = data.endsWith("\n") ? data : `${data}\n`
    const pipe = path.join(command.directory, "input")
    const writer = spawn("sh", ["-c", `[ -p "$0" ] && exec timeout 10 cat > "$0"`, pipe], {
      env: this.env,
      stdio: ["pipe", "ignore", "ignore"]
    })
    writer.stdin.on("error", () => {})
    writer.stdin.end(text)
    const code = await new Promise((resolve) => writer.on("close", resolve))
    if (code !== 0) {
      throw new Refusal(500, `failed to write to input pipe: open ${pipe}: ${text}`, "INTERNAL_SERVER_ERROR")
    }
    if (command.isEchoed) fs.appendFileSync(path.join(command.directory, "output.log"), text)
    return [204]
  }

  private download({ paths }: FilesDownloadRequest): Response {
    const boundary = "DAYTONA-FILE-BOUNDARY"
    const body: Array<Buffer> = []
    for (const file of paths) {
      const part = (name: string, headers: string, content: Buffer) =>
        body.push(
          Buffer.from(`--${boundary}\r\nContent-Disposition: ${disposition(name, file)}\r\n${headers}\r\n\r\n`),
          content,
          Buffer.from("\r\n")
        )
      try {
        const content = readFile(file)
        part("file", `Content-Type: application/octet-stream\r\nContent-Length: ${content.length}`, content)
      } catch (error) {
        const response = toErrorResponse("toolbox", "POST", file, error as Refusal)
        part("error", "Content-Type: application/json", Buffer.from(JSON.stringify(response)))
      }
    }
    body.push(Buffer.from(`--${boundary}--\r\n`))
    return new Response(Buffer.concat(body), {
      headers: { "content-type": `multipart/form-data; boundary=${boundary}` }
    })
  }

  private async upload(request: Request): Promise<Reply> {
    const form = await request.formData()
    for (let i = 0; form.has(`files[${i}].path`); i++) {
      const file = String(form.get(`files[${i}].path`))
      const content = form.get(`files[${i}].file`) as File
      try {
        fs.mkdirSync(path.dirname(file), { recursive: true })
        fs.writeFileSync(file, Buffer.from(await content.arrayBuffer()))
      } catch (error) {
        throw new Refusal(400, String(error), "BAD_REQUEST")
      }
    }
    return [200]
  }
}

const readFile = (file: string): Buffer => {
  try {
    if (fs.statSync(file).isDirectory()) {
      // The code is one that the API document doesn't have, and the program does.
      throw new Refusal(400, `${file} is a directory`, "INVALID_FILE_PATH" as "BAD_REQUEST")
    }
    return fs.readFileSync(file)
  } catch (error) {
    if (error instanceof Refusal) throw error
    const { code } = error as NodeJS.ErrnoException
    if (code === "EACCES") throw new Refusal(403, `permission denied: ${file}`, "FILE_ACCESS_DENIED")
    throw new Refusal(404, `file not found: ${file}`, "FILE_NOT_FOUND")
  }
}

const disposition = (name: string, file: string) => {
  const plain = file.replaceAll(/[^\x20-\x7e]/gu, "_").replaceAll(/["\\]/g, "\\$&")
  const encoded = encodeURIComponent(file).replaceAll(
    /['()*]/g,
    (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`
  )
  return `form-data; name="${name}"; filename="${plain}"; filename*=utf-8''${encoded}`
}

const exitCodeOf = ({ directory }: Running): number | undefined => {
  const text = readText(path.join(directory, "exit"))?.trim()
  return text === undefined || text === "" ? undefined : Number(text)
}

const readText = (file: string): string | undefined => fs.existsSync(file) ? fs.readFileSync(file, "utf8") : undefined

const killGroup = (pid: number | undefined) => {
  if (pid !== undefined) kill([-pid])
}

// With the shell end its group and all that descends from it.
const endSession = (shell: number | undefined) => {
  if (shell !== undefined) kill([...treeOf(shell), -shell])
}
