/**
 * The error of what is asked of a closed client.
 */
import * as Data from "effect/Data"

/**
 * What was asked needs a client, and it was closed.
 *
 * @remedy Connect again, and ask the new client.
 */
export class ClientClosed extends Data.TaggedError("ClientClosed")<{}> {
  override get message() {
    return "The client is closed: connect again."
  }
}
