import dev.fdguard.junit.FdguardExtension;
import java.io.FileInputStream;
import java.io.IOException;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Two of these tests leak on purpose. */
@ExtendWith(FdguardExtension.class)
class LeakTest {
    /** What leaks must not be closed by the garbage collector. */
    private static final List<Object> KEPT = new ArrayList<>();

    private static FileInputStream read() throws IOException {
        return new FileInputStream("/etc/hosts"); // the line
    }

    @Test
    void isClean() throws IOException {
        read().close();
        new ServerSocket(0).close();
    }

    @Test
    void leaksAFile() throws IOException {
        KEPT.add(read());
    }

    @Test
    void leaksAServer() throws IOException {
        KEPT.add(new ServerSocket(0)); // the server
    }
}
