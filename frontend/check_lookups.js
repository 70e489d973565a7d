/**
 * Reports each `object[key]` and `key in object` whose key may be any text: they also find what every object has, such
 * as `constructor` and `__proto__`, and an assignment may replace the prototype. `lookup(object, key)` reads the object
 * alone; a Map or Object.fromEntries() is written in safety.
 */
import { readFileSync } from 'node:fs';
import ts from 'typescript';

const { config } = ts.parseConfigFileTextToJson('tsconfig.json', readFileSync('tsconfig.json', 'utf8'));
const { fileNames, options } = ts.parseJsonConfigFileContent(config, ts.sys, import.meta.dirname);
const program = ts.createProgram(fileNames, options);
const checker = program.getTypeChecker();

const isText = (type) => Boolean(type.flags & ts.TypeFlags.String) || (type.isUnion() && type.types.some(isText));
const isAny = (type) => Boolean(type.flags & ts.TypeFlags.Any);

const isKey = (node, object) => {
  const type = checker.getTypeAtLocation(node);
  return isText(type) || (isAny(type) && !checker.isArrayLikeType(checker.getTypeAtLocation(object)));
};

/** Whether the prototype of an object is searched for a key that is not one of a list, or may be overwritten. */
function isLookup(node) {
  if (ts.isElementAccessExpression(node)) return isKey(node.argumentExpression, node.expression);
  const isIn = ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.InKeyword;
  return isIn && isKey(node.left, node.right);
}

let count = 0;
for (const file of program.getSourceFiles()) {
  if (!file.fileName.includes('/frontend/src/') || file.fileName.endsWith('/lib/lookup.js')) continue;
  const visit = (node) => {
    if (isLookup(node)) {
      const { line } = file.getLineAndCharacterOfPosition(node.getStart());
      console.error(`${file.fileName.split('/frontend/')[1]}:${line + 1}: ${node.getText()}`);
      count += 1;
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
}
process.exitCode = count ? 1 : 0;
