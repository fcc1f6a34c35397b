/**
 * The error of what is asked of a closed client.
 */
import * as Data from "effect/Data"

export class ClientClosed extends Data.TaggedError("ClientClosed")<{}> {
  override get message() {
    return "The client is closed: connect again."
  }
}
