/**
 * What to say of a session that another bridge has.
 */
import * as Bridge from "@gangway/protocol/Bridge"

/** Names the holder where it's known: a field that's there and undefined would be null on the wire. */
export const busyBy = (
  session: Bridge.SessionId,
  holder: { readonly port: number; readonly launch: string } | undefined
): Bridge.SessionBusy =>
  new Bridge.SessionBusy({ session, ...(holder === undefined ? {} : { port: holder.port, launch: holder.launch }) })
