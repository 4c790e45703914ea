package shop.stock;
import java.io.*;
import java.net.*;
import java.nio.channels.*;
import java.util.*;
import java.util.concurrent.CountDownLatch;

/** Opens in virtual threads alone, which Java has since 21. Each line with a mark opens as many as its mark says. */
public class Virtual {
    static final List<Object> kept = Collections.synchronizedList(new ArrayList<>());

    static void stream(String path) throws IOException {
        kept.add(new FileInputStream(path)); // OPENS stream 50
    }
    static void connect(ServerSocket server) throws IOException {
        kept.add(new Socket("127.0.0.1", server.getLocalPort())); // OPENS connect 50
    }
    public static void main(String[] args) throws Exception {
        var start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        CountDownLatch done = new CountDownLatch(50);
        CountDownLatch listening = new CountDownLatch(1);
        ServerSocket[] server = new ServerSocket[1];
        Runnable accepting = () -> {
            try {
                server[0] = new ServerSocket(0); // OPENS listen 1
                listening.countDown();
                while (true) kept.add(server[0].accept()); // OPENS accept 50
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        };
        start.invoke(null, accepting);
        listening.await();
        for (int i = 0; i < 50; i++) {
            Runnable work = () -> {
                try {
                    Thread.sleep(5);
                    stream(args[0]);
                    connect(server[0]);
                    done.countDown();
                } catch (Exception e) {
                    throw new RuntimeException(e);
                }
            };
            start.invoke(null, work);
        }
        done.await();
        System.out.println("opened");
        Thread.currentThread().join();
    }
}
