/**
 * The platform's services, for hosts that provide none: Node's, which Bun has too.
 *
 * Everywhere else an app chooses them. Here there's nobody to do it, so this module, which only `Promise.ts` loads, may
 * name a platform.
 */
import * as NodeChildProcessSpawner from "@effect/platform-node-shared/NodeChildProcessSpawner"
import * as NodeCrypto from "@effect/platform-node-shared/NodeCrypto"
import * as NodeFileSystem from "@effect/platform-node-shared/NodeFileSystem"
import * as NodePath from "@effect/platform-node-shared/NodePath"
import type * as Crypto from "effect/Crypto"
import type * as FileSystem from "effect/FileSystem"
import * as Layer from "effect/Layer"
import type * as Path from "effect/Path"
import type { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"

export type Platform = ChildProcessSpawner | Crypto.Crypto | FileSystem.FileSystem | Path.Path

export const layer: Layer.Layer<Platform> = NodeChildProcessSpawner.layer.pipe(
  Layer.provideMerge(Layer.mergeAll(NodeCrypto.layer, NodeFileSystem.layer, NodePath.layer))
)
