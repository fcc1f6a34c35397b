import { assert, describe, it } from "@effect/vitest"
import { BridgeUnavailable, Turn } from "@gangway/client"
import { Bridge } from "@gangway/protocol"
import { Exit } from "effect"
import * as Failure from "../src/Failure.ts"

const turn = Bridge.TurnId.make("t1")
const end: Bridge.End = { type: "aborted", reason: "shutdown", usage: { measured: true } }

describe("how a command ends", () => {
  it("says how to go on with a turn that ended before its agent had the prompt", () => {
    const conflict = (field: "prompt" | "attempt") =>
      new Turn.ContinueFailed({
        turn,
        end,
        reason: new Bridge.TurnConflict({ turn, field, attempt: 1, state: "aborted" })
      })
    assert.deepStrictEqual(Failure.ending(Exit.fail(conflict("prompt"))), {
      exitCode: 2,
      message:
        "turn t1 ended before its agent had the prompt: run the same prompt again, with this --session and --turn t1"
    })
    assert.strictEqual(Failure.ending(Exit.fail(conflict("attempt"))).exitCode, 4)
  })

  it("shows the log's last line of a launch that failed, and never a line of a stack trace", () => {
    const said = (reason: Partial<Extract<BridgeUnavailable.Reason, { _tag: "LaunchFailed" }>>) =>
      Failure.ending(Exit.fail(
        new BridgeUnavailable.BridgeUnavailable({
          bridge: Bridge.BridgeId.make("b1"),
          reason: { _tag: "LaunchFailed", launches: 1, log: "", ...reason }
        })
      )).message
    assert.strictEqual(
      said({ exitCode: 1, log: "TypeError: boom.\n    at f (x.ts:1:2)\n" }),
      "bridge b1 can't be launched: TypeError: boom"
    )
    assert.strictEqual(said({ exitCode: 1 }), "bridge b1 can't be launched: it was launched and exited with 1")
    assert.strictEqual(said({}), "bridge b1 can't be launched: it was launched and doesn't answer")
    assert.strictEqual(
      said({ launches: 6, exitCode: 137, problem: "nobody listens there" }),
      "bridge b1 can't be launched: it was launched 6 times, and at last exited with 137, nobody listens there"
    )
    assert.strictEqual(
      said({ exitCode: 127, log: "/state/bridge.log: 1: /x: not found" }),
      "the bridge program can't be run (/x: not found): name it with --bridge-command or GANGWAY_BRIDGE"
    )
  })
})
