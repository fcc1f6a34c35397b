/**
 * All parts of a turn that has ended, void ones too.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import { joinFragments } from "@gangway/protocol/Bridge"
import * as Stream from "effect/Stream"
import type { TurnLog } from "../TurnLog.ts"

export const scan = (
  log: TurnLog
): Stream.Stream<Bridge.NumberedPart, Bridge.LogUnavailable | Bridge.PartNotFound | Bridge.TurnDamaged> =>
  log.read({ from: 1 }).pipe(
    Stream.flatMap((event) =>
      event._tag === "Batch"
        ? Stream.fromIterable(JSON.parse(`[${event.lines}]`) as ReadonlyArray<Bridge.NumberedPart>)
        : Stream.empty
    ),
    joinFragments
  )
