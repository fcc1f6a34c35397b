/**
 * A program of the benchmark in a process of its own, and the calls between it and the one that started it.
 */
import { resolve } from "node:path"

/** What a program can be asked, by name. */
export interface Commands {
  readonly [name: string]: (argument: never) => Promise<unknown>
}

interface Call {
  readonly id: number
  readonly name: string
  readonly argument: unknown
}

type Message =
  | { readonly id: number; readonly value: unknown }
  | { readonly id: number; readonly error: string }
  | { readonly event: string }

/** Answers calls, in the program, until the other side is gone. */
export const answer = (commands: Commands): void => {
  process.on("disconnect", () => process.exit())
  process.on("message", ({ argument, id, name }: Call) => {
    commands[name]!(argument as never).then(
      (value) => process.send!({ id, value }),
      (error: unknown) =>
        process.send!({ id, error: error instanceof Error ? `${error.message}\n${error.stack}` : String(error) })
    )
  })
}

/** Tells something that wasn't asked for. */
export const tell = (event: string): void => {
  process.send!({ event })
}

/** A program that was started. */
export class Child<C extends Commands> {
  private readonly process: Bun.Subprocess<"pipe", "inherit", "inherit">
  private readonly calls = new Map<
    number,
    { readonly resolve: (value: never) => void; readonly reject: (_: Error) => void }
  >()
  private readonly listeners = new Map<string, () => void>()
  private nextId = 0

  /** `input` is what its standard input brings, which stays open. */
  constructor(file: string, options: { readonly arguments?: ReadonlyArray<string>; readonly input?: string } = {}) {
    this.process = Bun.spawn([process.execPath, resolve(import.meta.dirname, file), ...options.arguments ?? []], {
      stdin: "pipe",
      stdout: "inherit",
      stderr: "inherit",
      ipc: (message: Message) => {
        if ("event" in message) return this.listeners.get(message.event)?.()
        const call = this.calls.get(message.id)
        this.calls.delete(message.id)
        if ("error" in message) call?.reject(new Error(`${file}: ${message.error}`))
        else call?.resolve(message.value as never)
      },
      onExit: () => {
        for (const { reject } of this.calls.values()) reject(new Error(`${file} ended`))
      }
    })
    if (options.input !== undefined) {
      this.process.stdin.write(options.input)
      void this.process.stdin.flush()
    }
  }

  call<K extends keyof C>(name: K, ...[argument]: Parameters<C[K]>): Promise<Awaited<ReturnType<C[K]>>> {
    const id = this.nextId++
    return new Promise((resolve, reject) => {
      this.calls.set(id, { resolve, reject })
      this.process.send({ id, name, argument } as Call)
    })
  }

  /** Waits until the program tells the event. */
  told(event: string): Promise<void> {
    return new Promise((resolve) => this.listeners.set(event, resolve))
  }

  signal(name: "SIGSTOP" | "SIGCONT"): void {
    this.process.kill(name)
  }

  async end(): Promise<void> {
    this.process.kill("SIGKILL")
    await this.process.exited
  }
}
