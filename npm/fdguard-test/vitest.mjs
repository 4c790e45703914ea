// For Vitest: `setupFiles: ["fdguard-test/vitest"]` in its configuration, with the pool `forks`.
import { afterEach, beforeEach } from "vitest";
import { Guard } from "./guard.mjs";

const guard = new Guard();
beforeEach(() => guard.before());
afterEach(() => guard.after());
