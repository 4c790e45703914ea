// For node:test: `node --test --import fdguard-test/node`.
import { afterEach, beforeEach } from "node:test";
import { Guard } from "./guard.mjs";

const guard = new Guard();
// The process that only starts the test files has no tests.
if (process.env.NODE_TEST_CONTEXT || !process.execArgv.includes("--test")) {
  beforeEach(() => guard.before());
  afterEach(() => guard.after());
}
