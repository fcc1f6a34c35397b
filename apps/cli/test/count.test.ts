import { assert, describe, it } from "@effect/vitest"
import type { ScriptedAgent } from "@gangway/drivers"
import type { Bridge } from "@gangway/protocol"
import * as Count from "../src/demo/Count.ts"

const delta = (n: number, text: string): Bridge.NumberedPart => ({
  n,
  part: { type: "text-delta", id: "t", delta: text }
})

const finished: Bridge.KnownPart = { type: "step-finished", usage: { measured: true } }

describe("the count", () => {
  const file = [delta(1, "a"), delta(2, "b"), delta(3, "c")]

  it("finds nothing where each line of the file was read once", () => {
    assert.deepStrictEqual(Count.byFile(file, file), { lost: 0, doubled: 0 })
  })

  it("finds parts that were lost, doubled, or changed on the way", () => {
    assert.deepStrictEqual(Count.byFile([file[0]!, file[2]!], file), { lost: 1, doubled: 0 })
    assert.deepStrictEqual(Count.byFile([...file, file[1]!], file), { lost: 0, doubled: 1 })
    assert.deepStrictEqual(Count.byFile([delta(1, "A"), ...file.slice(1)], file), { lost: 1, doubled: 1 })
    assert.deepStrictEqual(Count.byFile([], file), { lost: 3, doubled: 0 })
  })

  it("reads the parts of a turn's file, without headers and ends", () => {
    const text = [
      "{\"format\":1}",
      ...file.map((part) => JSON.stringify(part)),
      "{\"end\":{},\"attempt\":1,\"next\":4}",
      ""
    ]
    assert.deepStrictEqual(Count.partsOfFile(text.join("\n")), file)
  })

  const journal = (
    ...steps: ReadonlyArray<readonly [attempt: number, step: number, text: string, recorded: boolean]>
  ) =>
    steps.flatMap(([attempt, step, text, recorded]): ReadonlyArray<ScriptedAgent.JournalEntry> => [
      {
        type: "emitted",
        turn: "t1",
        attempt,
        step,
        first: 0,
        parts: [{ type: "text-delta", id: `t-${attempt}-${step}`, delta: text }, finished]
      },
      ...(recorded ? [{ type: "recorded", turn: "t1", attempt, step } as const] : [])
    ])

  const step = (n: number, attempt: number, index: number, ...texts: ReadonlyArray<string>) => [
    ...texts.map((text, i) => ({
      n: n + i,
      part: { type: "text-delta", id: `t-${attempt}-${index}`, delta: text } as const
    })),
    { n: n + texts.length, part: finished }
  ]

  it("compares what counts with the steps that the agent finished, wherever deltas were cut", () => {
    const emitted = journal([1, 0, "abc", true], [1, 1, "half", false], [2, 1, "whole", true])
    const read = [
      ...step(1, 1, 0, "a", "bc"),
      delta(4, "ha"),
      { n: 5, part: { type: "turn-continued", attempt: 2, keep: 3 } as const },
      ...step(6, 2, 1, "whole")
    ]
    assert.deepStrictEqual(Count.byJournal(read, emitted), { lost: 0, doubled: 0 })
  })

  it("finds a finished step that's missing, and one that's there twice", () => {
    const emitted = journal([1, 0, "abc", true], [1, 1, "def", true])
    assert.deepStrictEqual(Count.byJournal(step(1, 1, 0, "abc"), emitted), { lost: 2, doubled: 0 })
    const twice = [...step(1, 1, 0, "abc"), ...step(3, 1, 1, "def"), ...step(5, 2, 1, "def")]
    assert.deepStrictEqual(Count.byJournal(twice, emitted), { lost: 0, doubled: 2 })
  })
})
