import java.io.*;
import java.net.*;
import java.nio.file.*;
import java.util.*;

/** Opens and closes at each line of its input, and says when it is done. */
public class Orders {
    static final List<Object> kept = new ArrayList<>();

    static void keep() throws IOException {
        kept.add(new FileInputStream("/etc/passwd")); // KEEPS
    }

    public static void main(String[] args) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("READY");
        while (input.readLine() != null) {
            try (var server = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"))) {
                for (int i = 0; i < 50; i++) {
                    new FileInputStream("/etc/passwd").close();
                    Files.newByteChannel(Path.of("/etc/passwd")).close();
                    var client = new Socket("127.0.0.1", server.getLocalPort());
                    server.accept().close();
                    client.close();
                }
            }
            keep();
            System.out.println("DONE");
        }
    }
}
