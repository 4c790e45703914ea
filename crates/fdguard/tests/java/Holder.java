package shop.stock;
import java.io.*;
import java.net.*;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.zip.*;

/** Opens by each of Java's ways, from threads of its own. Each line with a mark opens as many as its mark says. */
public class Holder {
    static final List<Object> kept = Collections.synchronizedList(new ArrayList<>());
    interface Work { void run() throws Exception; }

    static class Reader {
        void stream(String path) throws IOException {
            kept.add(new FileInputStream(path)); // OPENS stream 20
        }
    }
    static void channel(String path) throws IOException {
        kept.add(FileChannel.open(Path.of(path))); // OPENS channel 20
    }
    static void files(String path) throws IOException {
        kept.add(Files.newInputStream(Path.of(path))); // OPENS files 20
    }
    static void lines(String path) throws IOException {
        kept.add(Files.lines(Path.of(path))); // OPENS lines 20
    }
    static void folder() throws IOException {
        kept.add(Files.newDirectoryStream(Path.of("/"))); // OPENS folder 40
    }
    static void listen() throws IOException {
        kept.add(new ServerSocket(0)); // OPENS listen 20
    }
    static void random(String path) throws IOException {
        kept.add(new RandomAccessFile(path, "r")); // OPENS random 20
    }
    static void write() throws IOException {
        kept.add(new FileOutputStream("/dev/null")); // OPENS write 20
    }
    static void zip(File jar) throws IOException {
        kept.add(new ZipFile(jar)); // OPENS zip 1
    }
    static void selector() throws IOException {
        kept.add(Selector.open()); // OPENS selector 40/60
    }
    static void accept(ServerSocket server) throws IOException {
        kept.add(new Socket("127.0.0.1", server.getLocalPort())); // OPENS socket 20
        kept.add(server.accept()); // OPENS accept 20
    }
    static void nio(ServerSocketChannel server) throws IOException {
        kept.add(SocketChannel.open(server.getLocalAddress())); // OPENS connect 20
        kept.add(server.accept()); // OPENS accepted 20
    }
    static void child() throws IOException {
        kept.add(new ProcessBuilder("sleep", "5").start()); // OPENS child 60
    }
    static void closed(String path) throws IOException {
        new FileInputStream(path).close(); // OPENS closed 0
    }
    static void task(Work work) {
        try {
            for (int i = 0; i < 20; i++) work.run();
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }
    static Thread start(Work work) {
        Thread thread = new Thread(() -> task(work));
        thread.start();
        return thread;
    }
    public static void main(String[] args) throws Exception {
        String path = args[0];
        File jar = File.createTempFile("holder", ".zip");
        try (ZipOutputStream out = new ZipOutputStream(new FileOutputStream(jar))) {
            out.putNextEntry(new ZipEntry("x"));
        }
        ServerSocket server = new ServerSocket(0); // OPENS server 1
        ServerSocketChannel channel = ServerSocketChannel.open(); // OPENS server channel 1
        channel.bind(new InetSocketAddress("127.0.0.1", 0));
        kept.add(server);
        kept.add(channel);
        Thread[] threads = {
            start(() -> new Reader().stream(path)), start(() -> channel(path)), start(() -> files(path)),
            start(() -> lines(path)), start(Holder::folder), start(Holder::listen), start(() -> random(path)),
            start(Holder::write), start(() -> zip(jar)), start(Holder::selector), start(() -> accept(server)),
            start(() -> nio(channel)), start(() -> closed(path)),
        };
        for (Thread thread : threads) thread.join();
        if (args.length < 2) task(Holder::child);
        jar.delete();
        System.gc();
        System.out.println("opened " + kept.size());
        System.err.println("and said so");
        if (args.length > 1) System.exit(Integer.parseInt(args[1]));
        Thread.currentThread().join();
    }
}
