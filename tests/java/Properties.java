import java.io.FileInputStream;
import java.io.PrintStream;

/** Prints a properties file as java.util.Properties reads it: a line for each key, and character 1 before its value. */
public final class Properties {
    public static void main(String[] args) throws Exception {
        java.util.Properties read = new java.util.Properties();
        try (FileInputStream file = new FileInputStream(args[0])) {
            read.load(file);
        }
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        read.forEach((key, value) -> out.println(key + "\u0001" + value));
    }
}
