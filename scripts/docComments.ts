/**
 * The doc comments of exports: their text, their tags, and those of the fields of schemas and errors.
 */
import type { ModifierLike, Node } from "typescript/unstable/ast"
import { SyntaxKind } from "typescript/unstable/ast"
import {
  isArrowFunction,
  isCallExpression,
  isClassDeclaration,
  isIdentifier,
  isObjectLiteralExpression,
  isPropertyAccessExpression,
  isPropertyAssignment,
  isPropertySignatureDeclaration,
  isShorthandPropertyAssignment,
  isSpreadAssignment,
  isVariableStatement
} from "typescript/unstable/ast/is"
import { lineAt, type Source } from "./project.ts"

/** A field of a schema's struct, or of an error. */
export interface Field {
  /** The names that lead to it, such as `driver` and `version`; the elements of arrays are their array's. */
  readonly path: ReadonlyArray<string>
  /** What is said of it, or nothing. */
  readonly text: string
  /** The code that says its type: a schema, or a type. */
  readonly type: string
  readonly isOptional: boolean
}

/** An exported constant or class. */
export interface Documented {
  readonly path: string
  readonly line: number
  readonly name: string
  /** The comment without its tags, or nothing. */
  readonly text: string
  readonly tags: ReadonlyMap<string, string>
  readonly fields: ReadonlyArray<Field>
  /** The class that it extends, as code, where it's a class. */
  readonly base: string | undefined
}

const textOf = (node: Node, source: Source): string =>
  (node.jsDoc ?? []).findLast((comment) => comment.getStart(source.tree) > 0)?.getText(source.tree) ?? ""

// What stands between `/**` and `*/`: text, and then tags, each over as many lines as it takes.
const parse = (comment: string): { readonly text: string; readonly tags: ReadonlyMap<string, string> } => {
  const [text = "", ...tags] = comment
    .replace(/^\/\*\*/, "")
    .replace(/\*\/$/, "")
    .replaceAll(/^[ \t]*\* ?/gm, "")
    .split(/(?:^|\s)@(?=[a-z])/)
  const words = (piece: string) => piece.trim().replaceAll(/(?<!\n)\n(?!\n|- )/g, " ").replaceAll(/ {2,}/g, " ")
  return {
    text: words(text),
    tags: new Map(tags.map((tag) => {
      const [name = "", ...rest] = tag.split(/\s/)
      return [name, words(rest.join(" "))]
    }))
  }
}

/** What the sources say of their exported constants and classes, in their order. */
export const readDocs = (sources: ReadonlyArray<Source>): ReadonlyArray<Documented> => {
  const constants = new Map<string, { readonly node: Node; readonly source: Source }>()
  const find = (name: string, source: Source) => constants.get(`${source.path} ${name}`) ?? constants.get(name)
  const open = new Set<Node>()
  for (const source of sources) {
    for (const statement of source.tree.statements) {
      if (!isVariableStatement(statement)) continue
      for (const { initializer, name } of statement.declarationList.declarations) {
        if (initializer === undefined) continue
        const key = name.getText(source.tree)
        constants.set(`${source.path} ${key}`, { node: initializer, source })
        // What another file imports.
        constants.set(key, { node: initializer, source })
      }
    }
  }

  const fieldsOf = (node: Node, source: Source, path: ReadonlyArray<string>): ReadonlyArray<Field> => {
    const out: Array<Field> = []
    const add = (name: string, property: Node, type: Node | undefined, isOptional: boolean) => {
      const at = [...path, name]
      const { text } = parse(textOf(property, source))
      out.push({ path: at, text, type: type?.getText(source.tree) ?? name, isOptional })
      if (type !== undefined) out.push(...fieldsOf(type, source, at))
    }
    // What a constant of that name holds, or the struct that a function of that name makes.
    const follow = (name: string) => {
      const constant = find(name, source)
      if (constant === undefined || open.has(constant.node)) return
      open.add(constant.node)
      const { node } = constant
      out.push(...fieldsOf(isArrowFunction(node) ? node.body : node, constant.source, path))
      open.delete(node)
    }
    const visit = (node: Node): void => {
      if (isPropertySignatureDeclaration(node)) {
        const isOptional = node.postfixToken?.kind === SyntaxKind.QuestionToken
        return add(node.name.getText(source.tree), node, node.type, isOptional)
      }
      if (isArrowFunction(node)) return
      if (isCallExpression(node)) {
        if (isIdentifier(node.expression)) follow(node.expression.text)
        for (const argument of node.arguments) if (isIdentifier(argument)) follow(argument.text)
      }
      if (!isObjectLiteralExpression(node)) return void node.forEachChild(visit)
      for (const property of node.properties) {
        if (isPropertyAssignment(property)) {
          const type = property.initializer
          const isOptional = type.getText(source.tree).startsWith("Schema.optional")
          add(property.name.getText(source.tree), property, type, isOptional)
        } else if (isShorthandPropertyAssignment(property)) {
          add(property.name.getText(source.tree), property, undefined, false)
        } else if (isSpreadAssignment(property)) {
          const { expression } = property
          if (isIdentifier(expression)) follow(expression.text)
          else if (isPropertyAccessExpression(expression)) follow(expression.expression.getText(source.tree))
        }
      }
    }
    visit(node)
    return out
  }

  const documented: Array<Documented> = []
  for (const source of sources) {
    for (const statement of source.tree.statements) {
      const { modifiers } = statement as { readonly modifiers?: ReadonlyArray<ModifierLike> }
      if (modifiers?.some(({ kind }) => kind === SyntaxKind.ExportKeyword) !== true) continue
      const about = {
        path: source.path,
        line: lineAt(source.text, statement.getStart(source.tree)),
        ...parse(textOf(statement, source))
      }
      if (isClassDeclaration(statement) && statement.name !== undefined) {
        const bases = statement.heritageClauses ?? []
        documented.push({
          ...about,
          name: statement.name.text,
          fields: bases.flatMap((base) => fieldsOf(base, source, [])),
          base: bases.map((base) => base.getText(source.tree)).join(" ")
        })
      } else if (isVariableStatement(statement)) {
        for (const { initializer, name } of statement.declarationList.declarations) {
          const fields = initializer === undefined ? [] : fieldsOf(initializer, source, [])
          documented.push({ ...about, name: name.getText(source.tree), fields, base: undefined })
        }
      }
    }
  }
  return documented
}
