/**
 * Runs effects and streams for those who wait for promises and iterate.
 */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import type * as ManagedRuntime from "effect/ManagedRuntime"
import * as Pull from "effect/Pull"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { describe } from "../toolOutcome.ts"
import { ClientClosed } from "./closed.ts"

/** What a client runs on. All of it ends when it's closed. */
export interface Runner<R> {
  /** Rejects with the error itself, with the signal's reason as soon as it aborts, or with `ClientClosed`. */
  readonly run: <A, E>(effect: Effect.Effect<A, E, R>, signal?: AbortSignal) => Promise<A>
  /** Each iteration runs the stream anew, and pulls its next chunk when the one before it is used up. */
  readonly iterate: <A, E>(stream: Stream.Stream<A, E, R>, signal?: AbortSignal) => AsyncIterable<A>
  readonly close: () => Promise<void>
}

export const make = <R, ER>(runtime: ManagedRuntime.ManagedRuntime<R, ER>): Runner<R> => {
  let isClosed = false
  let closing: Promise<void> | undefined

  const settle = <A, E>(fiber: Fiber.Fiber<A, E>, signal: AbortSignal | undefined): Promise<A> =>
    new Promise((resolve, reject) => {
      const onAbort = () => {
        reject(signal!.reason)
        fiber.interruptUnsafe()
      }
      signal?.addEventListener("abort", onAbort, { once: true })
      fiber.addObserver((exit) => {
        signal?.removeEventListener("abort", onAbort)
        if (Exit.isSuccess(exit)) resolve(exit.value)
        else if (signal?.aborted === true) reject(signal.reason)
        else reject(isClosed ? new ClientClosed() : Cause.squash(exit.cause))
      })
    })

  const run: Runner<R>["run"] = (effect, signal) => {
    if (signal?.aborted === true) return Promise.reject(signal.reason)
    if (isClosed) return Promise.reject(new ClientClosed())
    return settle(runtime.runFork(effect), signal)
  }

  const iterator = <A, E>(stream: Stream.Stream<A, E, R>, signal: AbortSignal | undefined): AsyncIterator<A> => {
    const scope = Scope.forkUnsafe(runtime.scope)
    let pull: Effect.Effect<ReadonlyArray<A> | undefined, E, R> = Effect.flatMap(
      Scope.provide(Stream.toPull(stream), scope),
      (next) => pull = Pull.catchDone(next, () => Effect.undefined)
    )
    let pulling: Fiber.Fiber<ReadonlyArray<A> | undefined, E | ER> | undefined
    let chunk: ReadonlyArray<A> = []
    let taken = 0
    let isOver = false
    let released: Promise<unknown> | undefined

    // At once where the signal aborts, whether anybody asks for more or not.
    const release = () =>
      released ??= Effect.runPromiseExit(Effect.andThen(
        pulling === undefined ? Effect.void : Fiber.interrupt(pulling),
        Scope.close(scope, Exit.void)
      ))
    const end = <B>(result: () => B | Promise<B>): Promise<B> => {
      isOver = true
      signal?.removeEventListener("abort", release)
      return release().then(result)
    }
    signal?.addEventListener("abort", release, { once: true })

    const done: IteratorResult<A> = { done: true, value: undefined }
    const step = (): Promise<IteratorResult<A>> => {
      if (isOver) return Promise.resolve(done)
      if (signal?.aborted === true) return end(() => Promise.reject(signal.reason))
      if (taken < chunk.length) return Promise.resolve({ done: false, value: chunk[taken++]! })
      if (isClosed) return end(() => Promise.reject(new ClientClosed()))
      pulling = runtime.runFork(pull)
      return settle(pulling, signal).then(
        (values): IteratorResult<A> | Promise<IteratorResult<A>> => {
          if (isOver || values === undefined) return end(() => done)
          chunk = values
          taken = 1
          return { done: false, value: values[0]! }
        },
        (error) => isOver ? done : end(() => Promise.reject(error))
      )
    }

    // Who asks for more before the last one came waits for it, as with a generator; `return` ends both.
    let last: Promise<unknown> = Promise.resolve()
    const ignore = () => {}
    return {
      next: () => {
        const result = last.then(step)
        last = result.then(ignore, ignore)
        return result
      },
      return: (value) => end(() => ({ done: true, value }))
    }
  }

  return {
    run,
    iterate: (stream, signal) => ({ [Symbol.asyncIterator]: () => iterator(stream, signal) }),
    close: () => {
      isClosed = true
      return closing ??= runtime.dispose()
    }
  }
}

/**
 * Calls a function that may return a promise; its signal aborts when nobody waits for it any more. Fails with the message
 * of what it throws.
 */
export const call = <A>(body: (signal: AbortSignal) => A | PromiseLike<A>): Effect.Effect<A, string> =>
  Effect.tryPromise({
    try: (signal) => new Promise<A>((resolve) => resolve(body(signal))),
    catch: describe
  })
