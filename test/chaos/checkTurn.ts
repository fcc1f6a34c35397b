/**
 * Compares what a turn's file holds with what the agent says it did, and with what hosts have read.
 */
import { assert } from "@effect/vitest"
import { nextNumber } from "@gangway/client/Turn"
import type { ScriptedAgent } from "@gangway/drivers"
import type { Bridge } from "@gangway/protocol"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { agentParts, said } from "../../packages/drivers/test/fixtures/checker.ts"
import { answerTo } from "./Answers.ts"
import type { Observed } from "./Observed.ts"
import * as W from "./World.ts"

type Journal = ReadonlyArray<ScriptedAgent.JournalEntry>

/** An attempt as it's in the file. */
interface Attempt {
  readonly attempt: number
  /** The number of its first part, which it may not have. */
  readonly first: number
  readonly lines: Array<string>
  end: Bridge.EndLine | undefined
}

interface File {
  readonly attempts: ReadonlyArray<Attempt>
  /** All lines of parts; the part with number n is at n - 1. */
  readonly lines: ReadonlyArray<string>
  readonly parts: ReadonlyArray<Bridge.NumberedPart>
}

export interface Options {
  readonly world: W.World
  readonly observed: Observed
  /** Whole lines that the file had at some moments. */
  readonly snapshots: ReadonlyArray<string>
  readonly steps: number
  /** How the attempts before the last one may have ended. */
  readonly reasons: ReadonlyArray<Bridge.AbortReason>
}

/** Fails with what is wrong. */
export const checkTurn = (options: Options): { readonly attempts: number; readonly parts: number } => {
  const { observed, world } = options
  const text = readFileSync(world.turnFile(), "utf8")
  for (const snapshot of options.snapshots) {
    assert.isTrue(text.startsWith(snapshot), "what was in the file once still is")
  }
  const file = parseFile(text, options.reasons)
  checkRead(file, observed)
  const conversation: string = world.sessionFile().conversation
  const journal = readJournals(world, conversation)
  checkParts(file, journal, readFinished(world, conversation), options.steps)
  checkReplaced(file)
  checkAnswers(file, journal, observed)
  return { attempts: file.attempts.length, parts: file.parts.length }
}

/** The session's file tells of the turn what the turn's own file does, once its bridge came to writing it. */
export const checkSession = (world: W.World): void => {
  const end = JSON.parse(world.wholeLines().trimEnd().split("\n").at(-1)!)
  assert.deepStrictEqual(world.sessionFile().latest, { turn: W.turn, attempt: end.attempt, end: end.end })
}

// -----------------------------------------------------------------------------
// The file by itself
// -----------------------------------------------------------------------------

const parseFile = (text: string, reasons: ReadonlyArray<Bridge.AbortReason>): File => {
  assert.isTrue(text.endsWith("\n"), "the file ends with a newline")
  const [header, ...rest] = text.slice(0, -1).split("\n")
  assert.strictEqual(JSON.parse(header!).turn, W.turn)
  const lines: Array<string> = []
  const attempts: Array<Attempt> = []
  let current: Attempt = { attempt: 1, first: 1, lines: [], end: undefined }
  attempts.push(current)
  for (const line of rest) {
    const value = JSON.parse(line)
    if (line.startsWith("{\"n\":")) {
      assert.strictEqual(value.n, lines.length + 1, "numbers are contiguous")
      assert.isTrue(line.startsWith(`{"n":${value.n},"part":{`), "a line has this form")
      const begins = value.part.type === "turn-continued"
      assert.strictEqual(current.end !== undefined, begins, "an attempt begins after an end, with turn-continued")
      if (begins) {
        assert.strictEqual(value.part.attempt, current.attempt + 1, "attempts are contiguous")
        current = { attempt: value.part.attempt, first: value.n, lines: [], end: undefined }
        attempts.push(current)
      }
      current.lines.push(line)
      lines.push(line)
      continue
    }
    if (current.end !== undefined) {
      // An attempt that was begun in the session's file only.
      current = { attempt: current.attempt + 1, first: lines.length + 1, lines: [], end: undefined }
      attempts.push(current)
    }
    assert.strictEqual(value.attempt, current.attempt, "an attempt has one end, its own")
    assert.strictEqual(value.next, lines.length + 1, "an end knows the next number")
    current.end = value
  }
  attempts.forEach(({ end }, index) => {
    if (index === attempts.length - 1) return assert.strictEqual(end?.end.type, "finished", "the turn is finished")
    assert.strictEqual(end?.end.type, "aborted")
    assert.include(reasons, end?.end.type === "aborted" ? end.end.reason : undefined)
  })
  return { attempts, lines, parts: lines.map((line) => JSON.parse(line)) }
}

// -----------------------------------------------------------------------------
// What hosts have read
// -----------------------------------------------------------------------------

const checkRead = (file: File, observed: Observed) => {
  const endLines = new Map(file.attempts.map(({ attempt, end }) => [attempt, JSON.stringify(end)]))
  for (const frame of observed.frames) {
    const { requestId, values } = JSON.parse(frame)
    const elements = values.map((value: any): string => {
      if ("end" in value) return endLines.get(value.attempt) ?? `no end of attempt ${value.attempt}`
      const first: number = value.parts[0].n
      const { attempt } = file.attempts.findLast((attempt) => attempt.first <= first && attempt.lines.length > 0)!
      return `{"attempt":${attempt},"parts":[${file.lines.slice(first - 1, first - 1 + value.parts.length).join(",")}]}`
    })
    const expected = `{"_tag":"Chunk","requestId":${JSON.stringify(requestId)},"values":[${elements.join(",")}]}`
    if (frame !== expected) {
      const at = [...frame].findIndex((unit, index) => unit !== expected[index])
      assert.strictEqual(
        frame.slice(at - 200, at + 200),
        expected.slice(at - 200, at + 200),
        "a chunk is the file's lines"
      )
    }
  }
  // Ends that hosts have read are those that the file has, each the only one of its attempt.
  for (const end of observed.ends) assert.strictEqual(JSON.stringify(end), endLines.get(end.attempt))

  const joined = joinFragments(file)
  for (const stream of observed.streams) {
    let next = stream[0]?.n ?? 1
    for (const part of stream) {
      assert.strictEqual(part.n, next, "a stream has each number once")
      const expected = joined.get(part.n)
      assert.strictEqual(JSON.stringify(part.part), JSON.stringify(expected?.part), `part ${part.n} is the file's`)
      assert.strictEqual(nextNumber(part), (expected?.last ?? part.n) + 1)
      next = nextNumber(part)
      while (file.parts[next - 1]?.part.type === "part-fragment" && !joined.has(next)) next++
    }
    assert.strictEqual(next, file.parts.length + 1, "a stream goes to the end")
  }
}

// Whole parts by the number of their first piece; pieces that nothing follows are none.
const joinFragments = ({ parts }: File) => {
  const joined = new Map<number, { readonly part: Bridge.Part; readonly last: number }>()
  let texts: Array<string> = []
  for (const { n, part } of parts) {
    if (part.type !== "part-fragment") {
      joined.set(n, { part, last: n })
      continue
    }
    const { index, last, of, text } = part as typeof Bridge.PartFragment.Type
    if (index === 0) texts = []
    assert.strictEqual(index, texts.length, "pieces are contiguous")
    assert.strictEqual(of, n - index)
    texts.push(text)
    if (last) joined.set(of, { part: JSON.parse(texts.join("")), last: n })
  }
  return joined
}

// -----------------------------------------------------------------------------
// What the agent did
// -----------------------------------------------------------------------------

const readLines = (path: string): ReadonlyArray<any> => {
  const text = readFileSync(path, "utf8")
  return text.slice(0, text.lastIndexOf("\n")).split("\n").filter((line) => line !== "").map((line) => JSON.parse(line))
}

const readJournals = (world: W.World, conversation: string): Journal => {
  const directory = join(world.home, "journal")
  for (const name of readdirSync(directory)) {
    if (name === `${conversation}.ndjson`) continue
    const others: Journal = readLines(join(directory, name))
    assert.isFalse(others.some(({ type }) => type === "turn"), "no other conversation has anything of the turn")
  }
  return readLines(join(directory, `${conversation}.ndjson`))
}

/** The attempt that finished each step, as the agent's conversation has it. */
const readFinished = (world: W.World, conversation: string): ReadonlyMap<number, number> => {
  const finished = new Map<number, number>()
  for (const entry of readLines(join(world.home, "conversations", `${conversation}.ndjson`))) {
    if (entry.type !== "step") continue
    assert.isFalse(finished.has(entry.step), `step ${entry.step} is finished once`)
    finished.set(entry.step, entry.attempt)
  }
  return finished
}

const isVoid = (part: Bridge.NumberedPart, continued: ReadonlyArray<{ readonly n: number; readonly keep: number }>) =>
  continued.some(({ keep, n }) => keep < part.n && part.n < n)

const isRecovered = (part: Bridge.Part) => (part as { readonly recovered?: boolean }).recovered === true

const checkParts = (file: File, journal: Journal, finished: ReadonlyMap<number, number>, steps: number) => {
  assert.strictEqual(finished.size, steps, "the agent finished all steps")
  const emitted = new Map<string, Array<Bridge.KnownPart>>()
  const byAttempt = new Map<number, Array<Bridge.KnownPart>>()
  for (const entry of journal) {
    if (entry.type === "recorded") assert.strictEqual(entry.attempt, finished.get(entry.step), "the journal agrees")
    if (entry.type !== "emitted") continue
    assert.isAtMost(
      entry.attempt,
      finished.get(entry.step)!,
      `step ${entry.step} isn't played again once it's finished`
    )
    const key = `${entry.attempt} ${entry.step}`
    const parts = emitted.get(key) ?? []
    assert.strictEqual(entry.first, parts.length, "the journal is contiguous")
    emitted.set(key, [...parts, ...entry.parts])
    byAttempt.set(entry.attempt, [...byAttempt.get(entry.attempt) ?? [], ...entry.parts])
  }
  const stepOf = (step: number) => said(emitted.get(`${finished.get(step)} ${step}`)!)

  const joined = joinFragments(file)
  // What a request replaces, the bridge says.
  const whole = file.parts.flatMap(({ n }) =>
    joined.has(n) ? [{ n, part: { ...joined.get(n)!.part, replaces: undefined } as Bridge.Part }] : []
  )

  const continued: Array<{ readonly n: number; readonly keep: number }> = []
  for (const { attempt, end, first, lines } of file.attempts) {
    const own = whole.filter(({ n }) => first <= n && n < first + lines.length)
    const recovered = agentParts(own.filter(({ part }) => isRecovered(part)).map(({ part }) => part))
    if (attempt > 1 && lines.length > 0) {
      const { keep } = own[0]!.part as typeof Bridge.TurnContinued.Type
      assert.strictEqual(own[0]!.part.type, "turn-continued")
      // Pieces that the end of an attempt left without their last one count for nothing.
      const before = whole.filter((part) => part.n < first && !isVoid(part, continued))
      // It may have been cut before all was recovered; the next one goes on with that.
      const isWhole = own.slice(1).some(({ part }) => !isRecovered(part)) || end?.end.type === "finished"
      checkContinuation({ attempt, keep, before, recovered, isWhole, finished, stepOf })
      continued.push({ n: first, keep })
      const rest = own.slice(1).map(({ part }) => isRecovered(part))
      assert.isFalse(
        rest.slice(rest.indexOf(false)).includes(true) && rest.includes(false),
        "recovered parts come first"
      )
    } else {
      assert.deepStrictEqual(recovered, [], "only a continued attempt recovers")
    }
    // What came live is a beginning of what the agent emitted in this attempt.
    const live = said(agentParts(own.filter(({ part }) => !isRecovered(part)).map(({ part }) => part)))
    const says = said(byAttempt.get(attempt) ?? [])
    assertBeginning(live, says, `attempt ${attempt} is what the agent emitted`)
    checkOwnParts(own.map(({ part }) => part), journal, attempt)
  }

  // What counts in the end: each step once, whole, as the attempt emitted it that finished it.
  let step = 0
  let parts: Array<Bridge.KnownPart> = []
  let usage = 0
  for (const part of agentParts(whole.filter((part) => !isVoid(part, continued)).map(({ part }) => part))) {
    parts.push(part)
    if (part.type !== "step-finished") continue
    usage += part.usage.inputTokens?.total ?? 0
    assert.deepStrictEqual(said(parts), stepOf(step), `step ${step} is there as it was emitted`)
    step++
    parts = []
  }
  assert.strictEqual(step, steps, "every step is there once")
  assert.deepStrictEqual(parts, [], "nothing comes after the last step")
  assert.strictEqual(file.attempts.at(-1)!.end?.end.usage.inputTokens?.total, usage, "usage is that of the steps")
}

/** The last text may be cut, in the middle of a character too. */
const assertBeginning = (beginning: ReadonlyArray<string>, whole: ReadonlyArray<string>, message: string) => {
  const last = (beginning.at(-1) ?? "").replace(/\ufffd$/, "")
  assert.deepStrictEqual(beginning.slice(0, -1), whole.slice(0, Math.max(0, beginning.length - 1)), message)
  assert.isTrue((whole[beginning.length - 1] ?? "").startsWith(last), message)
}

/** What a continued attempt keeps is exactly what the agent's conversation still has. */
const checkContinuation = (options: {
  readonly attempt: number
  readonly keep: number
  /** What counted before. */
  readonly before: ReadonlyArray<Bridge.NumberedPart>
  readonly recovered: ReadonlyArray<Bridge.KnownPart>
  /** Whether something follows what was recovered. */
  readonly isWhole: boolean
  readonly finished: ReadonlyMap<number, number>
  readonly stepOf: (step: number) => ReadonlyArray<string>
}) => {
  const { attempt, before, finished, isWhole, keep, recovered, stepOf } = options
  const ends = before.filter(({ part }) => part.type === "step-finished").map(({ n }) => n)
  const isFinished = (step: number) => (finished.get(step) ?? Infinity) < attempt
  for (let step = 0; step < ends.length; step++) {
    assert.isTrue(isFinished(step), `step ${step}, which the log has finished, is finished`)
  }
  const cut = before.filter(({ n }) => n > (ends.at(-1) ?? 0))
  if (!isFinished(ends.length)) {
    assert.strictEqual(keep, ends.at(-1) ?? 0, `attempt ${attempt} drops the step that was cut, and nothing else`)
    assert.deepStrictEqual(recovered, [])
    return
  }
  // The agent finished what the log has cut: the log keeps it, and gets the rest.
  assert.strictEqual(keep, Math.max(cut.at(-1)?.n ?? 0, ends.at(-1) ?? 0), `attempt ${attempt} drops nothing`)
  const expected: Array<string> = []
  for (let step = ends.length; isFinished(step); step++) expected.push(...stepOf(step))
  const had = said([...agentParts(cut.map(({ part }) => part)), ...recovered])
  if (isWhole) return assert.deepStrictEqual(had, expected, `attempt ${attempt} recovers what the log lacks`)
  assertBeginning(had, expected, `attempt ${attempt} recovers what the log lacks`)
}

/** Whatever the bridge adds is what the agent asked for, and what hosts answered. */
const checkOwnParts = (parts: ReadonlyArray<Bridge.Part>, journal: Journal, attempt: number) => {
  const asked = new Set<string>()
  for (const entry of journal) if (entry.type === "asked" && entry.attempt === attempt) asked.add(entry.id)
  const open = new Map<string, string>()
  const close = (id: string, type: string) => {
    assert.strictEqual(open.get(id), type, `${id} is answered once, after it was asked`)
    open.delete(id)
  }
  for (const part of parts as ReadonlyArray<Bridge.KnownPart>) {
    switch (part.type) {
      case "tool-call":
        // Its part is logged when it comes, which is before the agent waits for it.
        if (part.providerExecuted === false) open.set(part.id, "tool-result")
        break
      case "tool-approval-request":
        assert.isTrue(asked.has(part.approvalId), `${part.approvalId} was asked`)
        open.set(part.approvalId, "tool-approval-response")
        break
      case "question":
        assert.isTrue(asked.has(part.questionId), `${part.questionId} was asked`)
        open.set(part.questionId, "question-answer")
        break
      case "tool-result":
        if (part.providerExecuted !== true) close(part.id, part.type)
        break
      case "tool-approval-response":
        close(part.approvalId, part.type)
        break
      case "question-answer":
        close(part.questionId, part.type)
        break
    }
  }
}

/** A request that replaces another one asks the same, which an earlier attempt left open. */
const checkReplaced = ({ attempts }: File) => {
  const open = new Map<string, string>()
  for (const { lines } of attempts) {
    const asked = new Map<string, string>()
    for (const line of lines) {
      const { part } = JSON.parse(line) as { readonly part: Bridge.KnownPart }
      const id = part.type === "tool-call" && part.providerExecuted === false
        ? part.id
        : part.type === "tool-approval-request"
        ? part.approvalId
        : part.type === "question"
        ? part.questionId
        : undefined
      if (id !== undefined) {
        const { replaces } = part as { readonly replaces?: string }
        const what = JSON.stringify("questions" in part ? part.questions : [part.type, (part as any).params])
        if (replaces !== undefined) {
          assert.strictEqual(open.get(replaces), what, `${id} replaces ${replaces}`)
          open.delete(replaces)
        }
        asked.set(id, what)
      } else if (part.type === "tool-result") asked.delete(part.id)
      else if (part.type === "tool-approval-response") asked.delete(part.approvalId)
      else if (part.type === "question-answer") asked.delete(part.questionId)
    }
    for (const [id, what] of asked) open.set(id, what)
  }
}

/** What the agent heard, and what a bridge accepted, is in the log, as hosts answer it. */
const checkAnswers = ({ parts }: File, journal: Journal, observed: Observed) => {
  const answers = new Map<string, unknown>()
  const expected = new Map<string, any>()
  for (const { part } of parts as ReadonlyArray<{ readonly part: Bridge.KnownPart }>) {
    const answer = answerTo(part)
    if (answer !== undefined) expected.set(answer.id, answer.payload)
    if (part.type === "tool-result" && part.providerExecuted !== true) {
      const { isFailure, result } = expected.get(part.id)
      assert.deepStrictEqual([part.result, part.isFailure], [result, isFailure])
      answers.set(part.id, { result, isFailure })
    } else if (part.type === "tool-approval-response") {
      const { decision, reason } = expected.get(part.approvalId)
      assert.deepStrictEqual([part.decision, part.reason], [decision, reason])
      answers.set(part.approvalId, reason === undefined ? { decision } : { decision, reason })
    } else if (part.type === "question-answer") {
      const { isFailure, result } = expected.get(part.questionId)
      assert.deepStrictEqual([part.answer, part.isFailure], [result, isFailure])
      answers.set(part.questionId, { answer: result, isFailure })
    }
  }
  for (const entry of journal) {
    if (entry.type !== "answered") continue
    assert.deepStrictEqual(entry.answer as unknown, answers.get(entry.id), `the answer to ${entry.id} is logged`)
  }
  for (const id of observed.accepted) assert.isTrue(answers.has(id), `the accepted answer to ${id} is logged`)
}
