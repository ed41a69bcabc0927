package io.github.oncelog.client;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Little-endian numbers in byte arrays. */
final class Bytes {
  private static final VarHandle INT =
      MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
  private static final VarHandle LONG =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

  private Bytes() {}

  static int getInt(byte[] data, int at) {
    return (int) INT.get(data, at);
  }

  static void putInt(byte[] data, int at, int value) {
    INT.set(data, at, value);
  }

  static long getLong(byte[] data, int at) {
    return (long) LONG.get(data, at);
  }

  static void putLong(byte[] data, int at, long value) {
    LONG.set(data, at, value);
  }
}
