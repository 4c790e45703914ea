package dev.fdguard.junit;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** What the tracer of this process knows: {@code fdguard trace --report PID --json}. */
final class TraceReport {
    /** Seconds for the answer of the tracer. */
    private static final long PATIENCE = 120;

    private final Map<Integer, Map<?, ?>> sites = new HashMap<>();
    private String why = "not opened through the C library";

    /** Asks once about everything that this process holds. */
    static TraceReport ofThisProcess() {
        TraceReport report = new TraceReport();
        String dir = System.getenv("FDGUARD_TRACE_DIR");
        if (dir == null) {
            report.why = "run the tests under `fdguard trace`";
            return report;
        }
        try {
            report.ask(dir);
        } catch (IOException | RuntimeException error) {
            report.why = String.valueOf(error.getMessage());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            report.why = "interrupted";
        }
        return report;
    }

    private void ask(String dir) throws IOException, InterruptedException {
        Path file = Files.createTempFile("fdguard-junit-", ".json");
        try {
            String program = System.getenv().getOrDefault("FDGUARD", "fdguard");
            String pid = String.valueOf(ProcessHandle.current().pid());
            ProcessBuilder command = new ProcessBuilder(program, "trace", "--report", pid, "--json", "-o", file.toString());
            untraced(command.environment(), dir);
            Process tracer = command.redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
            if (!tracer.waitFor(PATIENCE, TimeUnit.SECONDS)) {
                tracer.destroyForcibly().waitFor();
                throw new IOException("the tracer did not respond within " + PATIENCE + " s");
            }
            // 1: there are findings.
            if (tracer.exitValue() > 1) {
                throw new IOException("the tracer exited with code " + tracer.exitValue());
            }
            read((Map<?, ?>) Json.parse(Files.readString(file)), Long.parseLong(pid));
        } finally {
            Files.deleteIfExists(file);
        }
    }

    private static void untraced(Map<String, String> environment, String dir) {
        environment.remove("FDGUARD_TRACE_DIR");
        String preload = environment.getOrDefault("LD_PRELOAD", "");
        String others = Stream.of(preload.split(":"))
                .filter(one -> !one.isEmpty() && !one.startsWith(dir))
                .collect(Collectors.joining(":"));
        environment.remove("LD_PRELOAD");
        if (!others.isEmpty()) {
            environment.put("LD_PRELOAD", others);
        }
    }

    private void read(Map<?, ?> document, long pid) {
        for (Object one : (List<?>) document.get("sites")) {
            Map<?, ?> site = (Map<?, ?>) one;
            if (((Number) site.get("pid")).longValue() != pid) {
                continue;
            }
            for (Object descriptor : (List<?>) site.get("fds")) {
                sites.put(((Number) ((Map<?, ?>) descriptor).get("fd")).intValue(), site);
            }
        }
    }

    /** Class, target and line of one descriptor. */
    String describe(int number, String target) {
        Map<?, ?> site = sites.get(number);
        if (site == null) {
            return "\n  fd " + number + "  " + target + "\n    line unknown: " + why;
        }
        Object named = site.get("target") == null ? target : site.get("target");
        return "\n  fd " + number + "  " + site.get("class") + " " + named + "\n    opened at " + place(site);
    }

    private static String place(Map<?, ?> site) {
        Map<?, ?> culprit = (Map<?, ?>) site.get("culprit");
        if (culprit == null || culprit.get("file") == null) {
            return (culprit == null ? "?" : culprit.get("function")) + " (" + site.get("how") + ")";
        }
        Object line = culprit.get("line") == null ? "?" : ((Number) culprit.get("line")).intValue();
        return culprit.get("file") + ":" + line + " " + culprit.get("function") + " (" + site.get("how") + ")";
    }
}
