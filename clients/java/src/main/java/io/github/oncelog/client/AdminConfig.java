package io.github.oncelog.client;

/** The settings of an {@link Admin}. */
public final class AdminConfig extends ClientConfig<AdminConfig> {
  /** The defaults, for the nodes of the environment; see {@link #bootstrapServers()}. */
  public AdminConfig() {}

  /** The defaults, for nodes as "host:port,...". */
  public AdminConfig(String servers) {
    super(servers);
  }

  AdminConfig(AdminConfig other) {
    super(other);
  }

  @Override
  AdminConfig self() {
    return this;
  }
}
