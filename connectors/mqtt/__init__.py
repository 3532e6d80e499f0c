"""MQTT: predictions and values to a broker, confirmed one by one."""
