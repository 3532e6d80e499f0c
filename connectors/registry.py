"""The one list of connectors: which settings each `type` has, and what makes its parts."""

from connectors.modbus.settings import ModbusSourceSettings, ModbusTargetSettings
from connectors.mqtt.settings import MqttSettings

SourceSettings = ModbusSourceSettings
TargetSettings = ModbusTargetSettings
SinkSettings = MqttSettings
