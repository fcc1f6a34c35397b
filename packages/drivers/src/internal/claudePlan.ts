/**
 * The plan that Claude Code makes with its tools: with older models a to-do list, with newer ones tasks.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { planOf } from "./plan.ts"

const Todos = Schema.Struct({
  newTodos: Schema.Array(Schema.Struct({ content: Schema.String, status: Schema.String }))
})
const Task = Schema.Struct({ id: Schema.String, subject: Schema.String, status: Schema.optional(Schema.String) })
const TaskCreated = Schema.Struct({ task: Task })
const TaskList = Schema.Struct({ tasks: Schema.Array(Task) })
const TaskUpdated = Schema.Struct({
  taskId: Schema.String,
  statusChange: Schema.optional(Schema.Struct({ to: Schema.String }))
})

/**
 * Keeps the agent's plan, of which its tools tell the whole or one entry. Answers the plan where a result changed it.
 */
export const makePlan = () => {
  const tasks = new Map<string, { content: string; status: string }>()
  const take = <S extends Schema.Codec<unknown, unknown>>(schema: S, result: unknown) =>
    Option.getOrUndefined(Schema.decodeUnknownOption(schema)(result))

  return (name: string, result: unknown): typeof Bridge.Plan.Type | undefined => {
    switch (name) {
      case "TodoWrite": {
        const todos = take(Todos, result)
        return todos === undefined ? undefined : planOf(todos.newTodos)
      }
      case "TaskCreate": {
        const created = take(TaskCreated, result)
        if (created === undefined) return undefined
        tasks.set(created.task.id, { content: created.task.subject, status: created.task.status ?? "pending" })
        break
      }
      case "TaskUpdate": {
        const updated = take(TaskUpdated, result)
        const task = updated === undefined ? undefined : tasks.get(updated.taskId)
        if (updated?.statusChange === undefined || task === undefined) return undefined
        if (updated.statusChange.to === "deleted") tasks.delete(updated.taskId)
        else tasks.set(updated.taskId, { ...task, status: updated.statusChange.to })
        break
      }
      case "TaskList": {
        const list = take(TaskList, result)
        if (list === undefined) return undefined
        tasks.clear()
        for (const { id, status = "pending", subject } of list.tasks) tasks.set(id, { content: subject, status })
        break
      }
      default:
        return undefined
    }
    return planOf([...tasks.values()])
  }
}
