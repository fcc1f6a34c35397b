/**
 * What goes wrong with a copy, and not by the command line.
 */
import * as Data from "effect/Data"

/** A directory's files can't be brought into a sandbox, or back. */
export class CopyFailed extends Data.TaggedError("CopyFailed")<{ readonly problem: string }> {
  override get message() {
    return this.problem
  }
}
