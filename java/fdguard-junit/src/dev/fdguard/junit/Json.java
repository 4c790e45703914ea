package dev.fdguard.junit;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads JSON into maps, lists, strings, doubles and booleans: a test extension needs no library. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** Throws IllegalArgumentException if the text is not JSON. */
    static Object parse(String text) {
        try {
            return new Json(text).value();
        } catch (StringIndexOutOfBoundsException | NumberFormatException error) {
            throw new IllegalArgumentException("invalid report from the tracer", error);
        }
    }

    private Object value() {
        switch (next()) {
            case '{':
                return object();
            case '[':
                return array();
            case '"':
                return string();
            case 't':
                return word("true", true);
            case 'f':
                return word("false", false);
            case 'n':
                return word("null", null);
            default:
                return number();
        }
    }

    /** The next character that is not a space, without taking it. */
    private char next() {
        while (Character.isWhitespace(text.charAt(at))) {
            at++;
        }
        return text.charAt(at);
    }

    private void take(char wanted) {
        if (next() != wanted) {
            throw new IllegalArgumentException("invalid report from the tracer, at " + at);
        }
        at++;
    }

    private Map<String, Object> object() {
        Map<String, Object> found = new LinkedHashMap<>();
        take('{');
        while (next() != '}') {
            if (!found.isEmpty()) {
                take(',');
            }
            next();
            String name = string();
            take(':');
            found.put(name, value());
        }
        take('}');
        return found;
    }

    private List<Object> array() {
        List<Object> found = new ArrayList<>();
        take('[');
        while (next() != ']') {
            if (!found.isEmpty()) {
                take(',');
            }
            found.add(value());
        }
        take(']');
        return found;
    }

    private String string() {
        StringBuilder found = new StringBuilder();
        take('"');
        while (text.charAt(at) != '"') {
            char one = text.charAt(at++);
            found.append(one == '\\' ? escaped() : one);
        }
        at++;
        return found.toString();
    }

    private char escaped() {
        char one = text.charAt(at++);
        switch (one) {
            case 'n':
                return '\n';
            case 't':
                return '\t';
            case 'r':
                return '\r';
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            case 'u':
                at += 4;
                return (char) Integer.parseInt(text.substring(at - 4, at), 16);
            default:
                return one;
        }
    }

    private Object word(String word, Object meaning) {
        if (!text.startsWith(word, at)) {
            throw new IllegalArgumentException("invalid report from the tracer, at " + at);
        }
        at += word.length();
        return meaning;
    }

    private Double number() {
        int start = at;
        while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        return Double.valueOf(text.substring(start, at));
    }
}
