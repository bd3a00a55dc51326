"""The heads f and g (Sec. 2.3), and a ResNet trunk for small experiments."""
